#include "doctor/doctor.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oriel/oriel.h"
#include "tool.h"

enum { COLUMNS = 92, INDENT = 10 };

const char oriel_doctor_help[] =
    "usage: oriel doctor [--json]\n"
    "       oriel doctor --job PID [--json]\n"
    "\n"
    "Checks this machine: what is here, what is chosen and why, what is slow or missing\n"
    "and how to mend it. The system calls that oriel stands on are tried, not looked up.\n"
    "\n"
    "  --json   one object: {\"version\": ..., \"findings\": [{\"name\", \"status\", \"what\",\n"
    "           \"why\", \"mend\"}, ...], \"cuda\": ...}; status is ok, warn, missing or error\n"
    "\n"
    "  ok       as it should be\n"
    "  warn     works, but slower or less safe than it could be\n"
    "  missing  not here; oriel works without it\n"
    "  error    oriel does not work until this is mended; exit code 1\n"
    "\n"
    "With --job it looks at a running job of the same user instead and changes nothing\n"
    "there: PID is any process of the job, or its launcher (oriel run, mpirun). For every\n"
    "rank it says what that is doing, for how long and for whom it waits, then who holds\n"
    "up the others. Exit code 2 when there is no such job.\n";

static const char *const status_names[ORIEL_FINDING_STATUS_COUNT] = {
    [ORIEL_FINDING_OK] = "ok",
    [ORIEL_FINDING_WARN] = "warn",
    [ORIEL_FINDING_MISSING] = "missing",
    [ORIEL_FINDING_ERROR] = "error",
};

void oriel_report_add(oriel_report *report, const char *name, enum oriel_finding_status status,
                      const char *why, const char *mend, const char *what_fmt, ...)
{
    oriel_finding *finding;
    va_list args;

    if (report->count == ORIEL_FINDINGS_MAX)
        return;
    finding = &report->findings[report->count++];
    *finding = (oriel_finding){.status = status, .why = why, .mend = mend};
    snprintf(finding->name, sizeof(finding->name), "%s", name);
    va_start(args, what_fmt);
    vsnprintf(finding->what, sizeof(finding->what), what_fmt, args);
    va_end(args);
}

static int report_count(const oriel_report *report, enum oriel_finding_status status)
{
    int count = 0;

    for (int i = 0; i < report->count; i++)
        count += report->findings[i].status == status;
    return count;
}

/* ---- text --------------------------------------------------------------- */

/* Prints words from column `column` on, broken before COLUMNS. */
static void print_wrapped(const char *text, int indent, int column)
{
    while (*text != '\0') {
        int length = (int)strcspn(text, " ");

        if (column > indent && column + length > COLUMNS) {
            printf("\n%*s", indent, "");
            column = indent;
        }
        printf("%.*s", length, text);
        column += length;
        text += length;
        if (*text == ' ') {
            text++;
            column++;
            if (*text != '\0' && column + (int)strcspn(text, " ") <= COLUMNS)
                putchar(' ');
        }
    }
    putchar('\n');
}

static void print_finding(const oriel_finding *finding)
{
    int used = printf("%-*s%s: ", INDENT, status_names[finding->status], finding->name);

    print_wrapped(finding->what, INDENT + 2, used);
    if (finding->why[0] != '\0') {
        printf("%*s", INDENT + 2, "");
        print_wrapped(finding->why, INDENT + 2, INDENT + 2);
    }
    if (finding->mend[0] != '\0') {
        printf("%*smend: ", INDENT + 2, "");
        print_wrapped(finding->mend, INDENT + 8, INDENT + 8);
    }
}

static void print_text(const oriel_report *report)
{
    printf("oriel %s\n\n", oriel_version());
    for (int i = 0; i < report->count; i++)
        print_finding(&report->findings[i]);
    printf("\n%d ok, %d warnings, %d missing, %d errors\n", report_count(report, ORIEL_FINDING_OK),
           report_count(report, ORIEL_FINDING_WARN), report_count(report, ORIEL_FINDING_MISSING),
           report_count(report, ORIEL_FINDING_ERROR));
}

/* ---- JSON --------------------------------------------------------------- */

/* Text from outside (a variable, a program's output) need not be UTF-8: what is
 * not ASCII is written byte by byte, as Latin-1. */
void oriel_json_string(const char *text)
{
    putchar('"');
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;

        if (c == '"' || c == '\\')
            printf("\\%c", c);
        else if (c < 0x20 || c >= 0x7f)
            printf("\\u%04x", c);
        else
            putchar(c);
    }
    putchar('"');
}

static void print_member(const char *name, const char *value, const char *after)
{
    printf("\"%s\": ", name);
    oriel_json_string(value);
    fputs(after, stdout);
}

static void print_json(const oriel_report *report)
{
    printf("{");
    print_member("version", oriel_version(), ", \"findings\": [");
    for (int i = 0; i < report->count; i++) {
        const oriel_finding *finding = &report->findings[i];

        printf("%s\n  {", i > 0 ? "," : "");
        print_member("name", finding->name, ", ");
        print_member("status", status_names[finding->status], ", ");
        print_member("what", finding->what, ", ");
        print_member("why", finding->why, ", ");
        print_member("mend", finding->mend, "}");
    }
    printf("\n], \"cuda\": ");
    oriel_gpus_json(&report->gpus);
    printf("}\n");
}

/* ---- the command -------------------------------------------------------- */

static int examine_machine(int json)
{
    oriel_report *report = calloc(1, sizeof(*report));
    oriel_wheels wheels = {0};
    int code;

    if (report == NULL) {
        fprintf(stderr, "oriel doctor: out of memory\n");
        return ORIEL_EXIT_FAILED;
    }
    oriel_probe_machine(report);
    oriel_probe_system(report);
    oriel_probe_oriel(report);
    oriel_probe_python(report, &wheels);
    oriel_probe_gpus(report, &wheels);
    oriel_probe_libraries(report);
    if (json)
        print_json(report);
    else
        print_text(report);
    code = report_count(report, ORIEL_FINDING_ERROR) > 0 ? ORIEL_EXIT_FAILED : ORIEL_EXIT_OK;
    free(report);
    return code;
}

/* A process id; 0 when it is none. */
static int parse_pid(const char *text)
{
    char *end;
    long pid = strtol(text, &end, 10);

    return end != text && *end == '\0' && pid > 0 && pid <= INT_MAX ? (int)pid : 0;
}

int oriel_doctor_main(int argc, char **argv)
{
    int json = 0;
    int pid = 0;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            fputs(oriel_doctor_help, stdout);
            return ORIEL_EXIT_OK;
        }
        if (strcmp(argv[i], "--json") == 0) {
            json = 1;
        } else if (strcmp(argv[i], "--job") == 0) {
            const char *text = i + 1 < argc ? argv[++i] : "";

            pid = parse_pid(text);
            if (pid == 0)
                return oriel_usage_error("doctor", "--job needs a process id, not \"%s\"", text);
        } else {
            return oriel_usage_error("doctor", "there is no argument \"%s\"", argv[i]);
        }
    }
    return pid != 0 ? oriel_doctor_job(pid, json) : examine_machine(json);
}
