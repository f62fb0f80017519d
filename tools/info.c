#include "tool.h"

#include <stdio.h>
#include <string.h>

#include "base/config.h"
#include "core/launcher.h"
#include "oriel/oriel.h"

#ifndef ORIEL_COMMIT
#define ORIEL_COMMIT "unknown"
#endif
#ifndef ORIEL_BUILD_FLAGS
#define ORIEL_BUILD_FLAGS "unknown"
#endif

const char oriel_info_help[] =
    "usage: oriel info\n"
    "\n"
    "Shows the version, how this command was built, what the library can do, which\n"
    "launcher (oriel run, mpirun, srun) started it as which process, and every\n"
    "option (an environment variable) with its value, where that comes from and what it\n"
    "does. Exit code 1 when an option, or what a launcher set, cannot be used.\n";

static const char *compiler(void)
{
#if defined(__clang__)
    return "clang " __clang_version__;
#else
    return "gcc " __VERSION__;
#endif
}

static const char *architecture(void)
{
#if defined(__x86_64__)
    return "x86-64";
#elif defined(__aarch64__)
    return "aarch64";
#else
    return "another architecture";
#endif
}

static void print_build(void)
{
    printf("oriel %s\n\n", oriel_version());
    printf("compiler    %s, for %s\n", compiler(), architecture());
    printf("flags       %s\n", ORIEL_BUILD_FLAGS);
    printf("commit      %s\n", ORIEL_COMMIT);
}

int oriel_launcher_describe(char *text, size_t bytes)
{
    int by_hand = oriel_config_number(ORIEL_OPT_PROCESS_ID) >= 0 ||
                  oriel_config_number(ORIEL_OPT_NUM_PROCESSES) >= 0;
    int process, processes;
    oriel_launcher launcher;

    if (oriel_place_find(&process, &processes) != ORIEL_OK ||
        (!by_hand && oriel_launcher_find(&launcher) != ORIEL_OK)) {
        snprintf(text, bytes, "%s", oriel_last_error());
        return -1;
    }
    if (by_hand)
        snprintf(text, bytes, "process %d of %d, by ORIEL_PROCESS_ID and ORIEL_NUM_PROCESSES",
                 process, processes);
    else if (launcher.name == NULL)
        snprintf(text, bytes, "none: process 0 of 1");
    else if (launcher.local_size > 0)
        snprintf(text, bytes, "%s: process %d of %d; on this machine number %d of %d",
                 launcher.name, process, processes, launcher.local_id, launcher.local_size);
    else
        snprintf(text, bytes, "%s: process %d of %d, on several machines", launcher.name, process,
                 processes);
    return 0;
}

/* Returns -1 when the launcher's variables cannot be used. */
static int print_launcher(void)
{
    char text[320];
    int rc = oriel_launcher_describe(text, sizeof(text));

    if (rc != 0)
        fprintf(stderr, "oriel info: %s\n", text);
    else
        printf("launcher    %s\n", text);
    return rc;
}

static void print_features(void)
{
    printf("fabrics     host\n");
    printf("operations  all_reduce (");
    for (int i = 0; i < ORIEL_REDOP_COUNT; i++)
        printf("%s%s", i > 0 ? " " : "", oriel_redop_name((oriel_redop)i));
    printf(")\ndtypes     ");
    for (int i = 0; i < ORIEL_DTYPE_COUNT; i++)
        printf(" %s", oriel_dtype_name((oriel_dtype)i));
    printf("\n");
}

static const char *shown(const char *value)
{
    return value[0] != '\0' ? value : "-";
}

static void print_options(void)
{
    oriel_option option;
    int width = 5;

    for (int i = 0; oriel_option_get(i, &option) == ORIEL_OK; i++) {
        if ((int)strlen(option.value) > width)
            width = (int)strlen(option.value);
    }
    printf("\n%-20s %-*s %-12s %s\n", "option", width, "value", "source", "what it does");
    for (int i = 0; oriel_option_get(i, &option) == ORIEL_OK; i++)
        printf("%-20s %-*s %-12s %s\n", option.name, width, shown(option.value), option.source,
               option.help);
}

int oriel_info_main(int argc, char **argv)
{
    oriel_status st;
    int rc;

    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        fputs(oriel_info_help, stdout);
        return ORIEL_EXIT_OK;
    }
    if (argc > 1)
        return oriel_usage_error("info", "there is no argument \"%s\"", argv[1]);
    st = oriel_config_load();
    if (st != ORIEL_OK)
        fprintf(stderr, "oriel info: %s; the default is shown\n", oriel_last_error());
    print_build();
    print_features();
    rc = print_launcher();
    print_options();
    return st == ORIEL_OK && rc == 0 ? ORIEL_EXIT_OK : ORIEL_EXIT_FAILED;
}
