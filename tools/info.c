#include "tool.h"

#include <stdio.h>
#include <string.h>

#include "base/config.h"
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
    "Shows the version, how this command was built, what the library can do, and every\n"
    "option (an environment variable) with its value, where that comes from and what it\n"
    "does. Exit code 1 when an option has a value that cannot be used.\n";

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
    print_options();
    return st == ORIEL_OK ? ORIEL_EXIT_OK : ORIEL_EXIT_FAILED;
}
