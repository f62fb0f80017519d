/* One all_reduce in place of many bytes: large [MiB] [local ranks] */
#include <stdlib.h>

#include "support/check.h"
#include "support/process.h"
#include "support/ranks.h"

static void body(oriel_comm *comm, int rank, void *arg)
{
    const size_t *bytes = arg;
    unsigned char *data = malloc(*bytes);
    int n = oriel_comm_size(comm);

    CHECK(data != NULL, "%zu bytes", *bytes);
    for (size_t i = 0; i < *bytes; i++)
        data[i] = (unsigned char)(i % 251 + (size_t)rank);
    CHECK_OK(
        oriel_all_reduce(oriel_comm_world(comm), rank, data, data, *bytes, ORIEL_U8, ORIEL_SUM));
    for (size_t i = 0; i < *bytes; i++) {
        unsigned char want = (unsigned char)((size_t)n * (i % 251) + (size_t)(n * (n - 1) / 2));
        CHECK(data[i] == want, "byte %zu is %d instead of %d", i, data[i], want);
    }
    free(data);
}

int main(int argc, char **argv)
{
    size_t bytes = ((size_t)process_argument(argc, argv, 1, 64) << 20) + 13;
    oriel_comm *comm = process_comm(process_argument(argc, argv, 2, 1), 300.0, NULL);

    ranks_run(comm, body, &bytes);
    CHECK_OK(oriel_comm_destroy(comm));
    return 0;
}
