/* The subcommands of `oriel`. Each main gets its own name as argv[0] and
 * returns the exit code; its help is what `oriel help <name>` prints. */
#ifndef ORIEL_TOOLS_TOOL_H
#define ORIEL_TOOLS_TOOL_H

#include <stddef.h>

enum {
    ORIEL_EXIT_OK = 0,
    ORIEL_EXIT_FAILED = 1, /* the tool itself could not do its work */
    ORIEL_EXIT_USAGE = 2,
    ORIEL_EXIT_TIMEOUT = 124,
    ORIEL_EXIT_CANNOT_START = 126,
    ORIEL_EXIT_NOT_FOUND = 127,
    ORIEL_EXIT_SIGNAL = 128 /* plus the signal's number */
};

int oriel_run_main(int argc, char **argv);
int oriel_info_main(int argc, char **argv);
int oriel_doctor_main(int argc, char **argv);
int oriel_python_main(int argc, char **argv);

extern const char oriel_run_help[];
extern const char oriel_info_help[];
extern const char oriel_doctor_help[];
extern const char oriel_bench_help[];
extern const char oriel_verify_help[];

/* Prints "oriel <name>: <sentence>" and where to read more; returns
 * ORIEL_EXIT_USAGE. */
int oriel_usage_error(const char *name, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The launcher of this process, and as which of how many: one sentence. Returns -1,
 * with the sentence saying so, when the environment contradicts itself. */
int oriel_launcher_describe(char *text, size_t bytes);

/* The folder this command lies in, with a slash at its end. Returns -1 when it is not known. */
int oriel_command_folder(char *path, size_t bytes);
/* The program that PATH gives for `name`. Returns -1 when there is none. */
int oriel_path_find(const char *name, char *path, size_t bytes);
/* The Python interpreter that belongs to this command: the one in the same
 * folder, else python3 on PATH. Returns -1 when there is none. */
int oriel_python_find(char *path, size_t bytes);

#endif
