/* The command `oriel`: finds the tool that its first argument names. */
#include "tool.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "oriel/oriel.h"

static const struct tool {
    const char *name;    /* the command */
    const char *summary; /* one line for the list */
    const char *help;    /* all of --help */
    /* Gets the arguments from its own name on; returns the exit status. */
    int (*main)(int argc, char **argv);
} tools[] = {
    {.name = "run",
     .summary = "start local processes that form one job",
     .help = oriel_run_help,
     .main = oriel_run_main},
    {.name = "info",
     .summary = "show the version, the build and every option with its value",
     .help = oriel_info_help,
     .main = oriel_info_main},
    {.name = "doctor",
     .summary = "check this machine: what is here, what is chosen, what to mend",
     .help = oriel_doctor_help,
     .main = oriel_doctor_main},
    {.name = "bench",
     .summary = "measure an operation (needs Python)",
     .help = oriel_bench_help,
     .main = oriel_python_main},
    {.name = "verify",
     .summary = "show whether XLA's own collectives use NCCL's symmetric memory (needs Python)",
     .help = oriel_verify_help,
     .main = oriel_python_main},
};
enum { TOOL_COUNT = sizeof(tools) / sizeof(tools[0]) };

/* A descriptor that a later open() would get as number 0, 1 or 2 would be
 * mistaken for standard input or output. */
static int stdio_fill(void)
{
    int fd;

    do {
        fd = open("/dev/null", O_RDWR);
        if (fd < 0)
            return -1;
    } while (fd <= STDERR_FILENO);
    close(fd);
    return 0;
}

static void print_help(FILE *out)
{
    fprintf(out, "usage: oriel <command> [arguments]\n\ncommands:\n");
    for (int i = 0; i < TOOL_COUNT; i++)
        fprintf(out, "  %-8s %s\n", tools[i].name, tools[i].summary);
    fprintf(out, "\n"
                 "  oriel help <command>   how to use it\n"
                 "  oriel --version        the version\n");
}

static const struct tool *tool_find(const char *name)
{
    for (int i = 0; i < TOOL_COUNT; i++) {
        if (strcmp(tools[i].name, name) == 0)
            return &tools[i];
    }
    return NULL;
}

/* How many characters of `a` must be added, dropped or changed to get `b`. */
static int edit_distance(const char *a, const char *b)
{
    enum { LONGEST = 16 };
    int row[LONGEST + 1];
    int width = (int)strlen(b);

    if (strlen(a) > LONGEST || width > LONGEST)
        return LONGEST;
    for (int j = 0; j <= width; j++)
        row[j] = j;
    for (int i = 0; a[i] != '\0'; i++) {
        int diagonal = row[0];

        row[0] = i + 1;
        for (int j = 0; j < width; j++) {
            int best = diagonal + (a[i] != b[j]);

            diagonal = row[j + 1];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (diagonal + 1 < best)
                best = diagonal + 1;
            row[j + 1] = best;
        }
    }
    return row[width];
}

static int unknown_command(const char *name)
{
    const char *nearest = NULL;
    int least = 3; /* further away it is another word */

    for (int i = 0; i < TOOL_COUNT; i++) {
        int distance = edit_distance(name, tools[i].name);

        if (distance < least) {
            least = distance;
            nearest = tools[i].name;
        }
    }
    fprintf(stderr, "oriel: there is no command \"%s\"", name);
    if (nearest != NULL)
        fprintf(stderr, "; did you mean \"%s\"?", nearest);
    fprintf(stderr, "\nTry: oriel --help\n");
    return ORIEL_EXIT_USAGE;
}

static int help_main(int argc, char **argv)
{
    const struct tool *tool;

    if (argc < 2) {
        print_help(stdout);
        return ORIEL_EXIT_OK;
    }
    tool = tool_find(argv[1]);
    if (tool == NULL)
        return unknown_command(argv[1]);
    fputs(tool->help, stdout);
    return ORIEL_EXIT_OK;
}

static int dispatch(int argc, char **argv)
{
    const struct tool *tool;

    if (argc < 2) {
        print_help(stderr);
        return ORIEL_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "version") == 0) {
        printf("oriel %s\n", oriel_version());
        return ORIEL_EXIT_OK;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return help_main(1, argv);
    if (strcmp(argv[1], "help") == 0)
        return help_main(argc - 1, argv + 1);
    tool = tool_find(argv[1]);
    if (tool == NULL)
        return unknown_command(argv[1]);
    return tool->main(argc - 1, argv + 1);
}

int oriel_usage_error(const char *name, const char *fmt, ...)
{
    va_list args;

    fprintf(stderr, "oriel %s: ", name);
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fprintf(stderr, "\nTry: oriel help %s\n", name);
    return ORIEL_EXIT_USAGE;
}

int main(int argc, char **argv)
{
    int code;

    if (stdio_fill() != 0) {
        fprintf(stderr, "oriel: cannot open /dev/null\n");
        return ORIEL_EXIT_FAILED;
    }
    code = dispatch(argc, argv);
    if (fflush(stdout) != 0 && code == ORIEL_EXIT_OK) {
        perror("oriel: cannot write to standard output");
        code = ORIEL_EXIT_FAILED;
    }
    return code;
}
