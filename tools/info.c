/* `oriel info`: what this oriel is, where its parts lie and which options are set. */
#include "tool.h"

#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "choices.h"
#include "core/start/launcher.h"
#include "core/world/trace.h"
#include "oriel/oriel.h"

#ifndef ORIEL_BUILD_FLAGS
#define ORIEL_BUILD_FLAGS "unknown"
#endif

const char oriel_info_help[] =
    "usage: oriel info [--include | --pkg-config | --choices [PROCESSES [SMS]]]\n"
    "\n"
    "Shows the version, how this command was built, what the library can do, where its\n"
    "headers are, which launcher (oriel run, mpirun, srun) started it as which process, and\n"
    "every option (an environment variable) with its value, where that comes from and what\n"
    "it does. Exit code 1 when an option, or what a launcher set, cannot be used.\n"
    "\n"
    "  --include     prints the folder of the headers alone, for -I\n"
    "  --pkg-config  prints the folder of oriel.pc alone, for PKG_CONFIG_PATH\n"
    "  --choices     prints how each operation between so many processes (one for each core)\n"
    "                goes on this machine, by size, and why; and how where they share a GPU\n"
    "                of SMS multiprocessors (132, an H200's)\n";

static const struct part {
    const char *title;    /* as it is printed */
    const char *argument; /* the option that prints its folder alone */
    const char *folder;   /* in the prefix */
    const char *file;     /* in the folder: it is there if this is */
} parts[] = {
    {.title = "headers", .argument = "--include", .folder = "include", .file = "oriel/oriel.h"},
    {.title = "pkg-config",
     .argument = "--pkg-config",
     .folder = "lib/pkgconfig",
     .file = "oriel.pc"},
};
enum { PARTS = sizeof(parts) / sizeof(parts[0]) };

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
    printf("commit      %s\n", oriel_build_commit());
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
    printf("fabrics     host; on GPUs cuda, nccl; with ORIEL_FAULT fault around them\n");
    printf("operations ");
    for (uint32_t i = ORIEL_KIND_ALL_REDUCE; i < ORIEL_KIND_KERNEL; i++)
        printf(" %s", oriel_kind_name(i));
    printf(" %s\nreductions ", oriel_kind_name(ORIEL_KIND_MESSAGE));
    for (int i = 0; i < ORIEL_REDOP_COUNT; i++)
        printf(" %s", oriel_redop_name((oriel_redop)i));
    printf("\ndtypes     ");
    for (int i = 0; i < ORIEL_DTYPE_COUNT; i++)
        printf(" %s", oriel_dtype_name((oriel_dtype)i));
    printf("\n");
}

/* The path of the part's folder: in the prefix of this command, in a Python package that
 * was installed with it, or in the source tree. Returns -1 when it is in none of them. */
static int part_find(const struct part *part, char path[PATH_MAX])
{
    static const char *const places[] = {"..", "../lib/python3*/*-packages/oriel", "../oriel",
                                         "../.."};
    char command[PATH_MAX];
    int found = 0;

    if (oriel_command_folder(command, sizeof(command)) != 0)
        return -1;
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]) && !found; i++) {
        glob_t files;
        char *pattern;

        if (asprintf(&pattern, "%s%s/%s/%s", command, places[i], part->folder, part->file) < 0)
            return -1;
        if (glob(pattern, 0, NULL, &files) == 0) {
            files.gl_pathv[0][strlen(files.gl_pathv[0]) - strlen(part->file) - 1] = '\0';
            found = realpath(files.gl_pathv[0], path) != NULL;
            globfree(&files);
        }
        free(pattern);
    }
    return found ? 0 : -1;
}

static void print_parts(void)
{
    char path[PATH_MAX];

    for (int i = 0; i < PARTS; i++)
        printf("%-11s %s\n", parts[i].title,
               part_find(&parts[i], path) == 0 ? path : "not installed with this command");
}

static int print_part(const struct part *part)
{
    char path[PATH_MAX];

    if (part_find(part, path) != 0) {
        fprintf(stderr,
                "oriel info: there is no %s/%s where this command is installed; install oriel "
                "with pip, or with cmake --install\n",
                part->folder, part->file);
        return ORIEL_EXIT_FAILED;
    }
    printf("%s\n", path);
    return ORIEL_EXIT_OK;
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
    for (int i = 0; i < PARTS; i++) {
        if (argc == 2 && strcmp(argv[1], parts[i].argument) == 0)
            return print_part(&parts[i]);
    }
    if (argc > 1 && argc <= 4 && strcmp(argv[1], "--choices") == 0)
        return oriel_choices_main(argc > 2 ? argv[2] : NULL, argc > 3 ? argv[3] : NULL);
    if (argc > 1)
        return oriel_usage_error("info", "there is no argument \"%s\"", argv[1]);
    st = oriel_config_load();
    if (st != ORIEL_OK)
        fprintf(stderr, "oriel info: %s; the default is shown\n", oriel_last_error());
    print_build();
    print_features();
    print_parts();
    rc = print_launcher();
    print_options();
    return st == ORIEL_OK && rc == 0 ? ORIEL_EXIT_OK : ORIEL_EXIT_FAILED;
}
