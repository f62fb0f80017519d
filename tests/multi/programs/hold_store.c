/* Holds a store until its input ends, and says which keys have come: hold_store address key ... */
#include <stdio.h>
#include <unistd.h>

#include "core/store/store.h"
#include "support/check.h"

static const double patience_s = 120.0;

int main(int argc, char **argv)
{
    oriel_store_server *server = NULL;
    oriel_store store = ORIEL_STORE_INIT;
    char rest[64];
    size_t len;

    CHECK(argc > 1, "%d words", argc);
    CHECK_OK(oriel_store_server_create(argv[1], "", &server));
    CHECK_OK(oriel_store_connect(argv[1], "", patience_s, &store));
    printf("ready\n");
    fflush(stdout);
    for (int i = 2; i < argc; i++) {
        CHECK_OK(store.get(store.ctx, argv[i], patience_s, NULL, 0, &len));
        printf("%s\n", argv[i]);
        fflush(stdout);
    }
    while (read(STDIN_FILENO, rest, sizeof rest) > 0) {
    }
    oriel_store_disconnect(&store);
    oriel_store_server_destroy(server, 0.0);
    return 0;
}
