/* Compiles the kernels without a GPU: compile PARTS SM ...
 * PARTS of each architecture, from the first, which has the most important ones. */
#include <stdio.h>
#include <stdlib.h>

#include "base/sys.h"
#include "core/device/code.h"

int main(int argc, char **argv)
{
    int parts = argc > 1 ? atoi(argv[1]) : DEVICE_PARTS;

    for (int i = 2; i < argc; i++) {
        int arch = atoi(argv[i]);

        for (int part = 0; part < DEVICE_PARTS && part < parts; part++) {
            double began = oriel_now();
            void *cubin = NULL;
            size_t bytes = 0;
            oriel_status st = oriel_device_code_compile(part, arch, &cubin, &bytes);

            if (st == ORIEL_ERR_UNSUPPORTED) {
                printf("skipped: %s\n", oriel_last_error());
                return 77;
            }
            if (st != ORIEL_OK) {
                fprintf(stderr, "sm_%d, part %d: %s\n", arch, part, oriel_last_error());
                return 1;
            }
            printf("sm_%d part %d: %zu bytes, %.1f s\n", arch, part, bytes, oriel_now() - began);
            oriel_sys_now->release(cubin);
        }
    }
    return 0;
}
