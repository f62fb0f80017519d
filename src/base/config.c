#include "base/config.h"

#include <ctype.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/log.h"

enum { VALUE_BYTES = 512, NAME_BYTES = 64, WARNED_MAX = 64 };

enum kind { KIND_SECONDS, KIND_BYTES, KIND_INTEGER, KIND_CHOICE, KIND_TEXT, KIND_SECRET };

static const char *const fabrics[] = {"auto", "cuda", "nccl", NULL};
static const char *const nccl_comms[] = {"auto", "own", "xla", "none", NULL};

#define NUMBER(id, of, default_, least, most, text)                                                \
    [ORIEL_OPT_##id] = {.name = "ORIEL_" #id,                                                      \
                        .kind = of,                                                                \
                        .fallback = default_,                                                      \
                        .min = least,                                                              \
                        .max = most,                                                               \
                        .help = text}
#define CHOICE(id, default_, names, text)                                                          \
    [ORIEL_OPT_##id] = {.name = "ORIEL_" #id,                                                      \
                        .kind = KIND_CHOICE,                                                       \
                        .fallback = default_,                                                      \
                        .choices = names,                                                          \
                        .help = text}
#define TEXT(id, of, text)                                                                         \
    [ORIEL_OPT_##id] = {.name = "ORIEL_" #id, .kind = of, .fallback = "", .help = text}

static const struct {
    const char *name;           /* the variable */
    const char *fallback;       /* its value where nobody sets it, as text */
    enum kind kind;             /* what its text means */
    double min, max;            /* of a number */
    const char *const *choices; /* the names that are possible, then NULL */
    const char *help;           /* a sentence for `oriel info` */
} table[ORIEL_OPT_COUNT] = {
    NUMBER(TIMEOUT, KIND_SECONDS, "600", 1e-3, 1e9,
           "seconds an operation waits for a peer that is alive"),
    NUMBER(WARN_AFTER, KIND_SECONDS, "10", 0, 1e9,
           "seconds after which a wait is reported as a warning"),
    NUMBER(INIT_TIMEOUT, KIND_SECONDS, "300", 1e-3, 1e9,
           "seconds that start-up waits for all processes"),
    NUMBER(STAGING, KIND_BYTES, "64M", 256 << 10, 1e12,
           "bytes of staging memory per rank (K, M, G)"),
    NUMBER(CHUNK, KIND_BYTES, "128K", 1 << 10, 4 << 20,
           "bytes of one piece of a pipelined transfer (K, M, G)"),
    NUMBER(SPIN, KIND_SECONDS, "10", 0, 1e6, "microseconds a wait spins before it sleeps"),
    NUMBER(DIRECT, KIND_INTEGER, "1", 0, 1,
           "1: touch peers' memory directly where possible; 0: always stage"),
    NUMBER(TEAM, KIND_INTEGER, "4", 1, 64, "threads of a rank that run a kernel on the CPU"),
    NUMBER(JITTER, KIND_SECONDS, "0", 0, 1e6,
           "microseconds that a kernel's thread pauses at most, at random, before it synchronises: "
           "shakes out races"),
    NUMBER(ARENA, KIND_BYTES, "16G", 1 << 20, 1e13,
           "bytes per rank that kernels may share between processes; used when touched (K, M, G)"),
    NUMBER(WINDOWS, KIND_BYTES, "64G", 1 << 20, 1e13,
           "bytes per rank that windows may have; used when touched (K, M, G)"),
    CHOICE(LOG, "warn", oriel_log_levels, "what is printed on stderr: error, warn, info or debug"),
    NUMBER(PROCESS_ID, KIND_INTEGER, "", 0, 1 << 20, "number of this process, set by the launcher"),
    NUMBER(NUM_PROCESSES, KIND_INTEGER, "", 1, 1 << 20, "number of processes, set by the launcher"),
    TEXT(STORE, KIND_TEXT, "where the processes meet: unix:@name or host:port"),
    TEXT(SECRET, KIND_SECRET, "what the job's processes prove to each other"),
    TEXT(HOSTID, KIND_TEXT, "processes with different texts count as on different machines"),
    TEXT(ADDRESS, KIND_TEXT,
         "where other machines reach process 0: a name or an address; empty: each address of its "
         "machine is tried"),
    TEXT(FAULT, KIND_TEXT, "faults to inject, to test recovery: slot:call=action,..."),
    TEXT(NVRTC, KIND_TEXT, "file of NVRTC, which compiles GPU kernels; empty: libnvrtc.so"),
    TEXT(NCCL, KIND_TEXT, "file of NCCL, where none is loaded; empty: libnccl.so.2"),
    CHOICE(FABRIC, "auto", fabrics,
           "how GPU ranks reach each other's memory: cuda, nccl, or auto, which is cuda; the same "
           "on all"),
    CHOICE(NCCL_COMM, "auto", nccl_comms,
           "communicator of calls in jit: xla borrows XLA's, for buffers too; own, none; auto: "
           "XLA's where a call needs one; the same on all"),
    NUMBER(GIN, KIND_INTEGER, "0", 0, 1,
           "1: kernels of one's own run on groups that span machines, over NCCL's GIN; the same on "
           "all"),
    NUMBER(MULTICAST, KIND_INTEGER, "0", 0, 1,
           "1: all_reduce has via multicast, where GPUs are behind an NVSwitch; experimental; the "
           "same on all"),
    TEXT(CACHE, KIND_TEXT, "folder of compiled GPU kernels; empty: ~/.cache/oriel"),
    NUMBER(GPU_CTAS, KIND_INTEGER, "0", 0, 1024,
           "thread blocks of 512 threads on one GPU, of all its ranks together, at most two for "
           "each multiprocessor; 0: one, or less on a GPU with one rank"),
    NUMBER(GPU_KERNEL_CTAS, KIND_INTEGER, "0", 0, 1024,
           "the same for kernels of one's own, at most one for each multiprocessor; 0: likewise"),
    NUMBER(GPU_STAGE, KIND_BYTES, "66M", 1 << 20, 4e9,
           "bytes per GPU rank for data that passes through oriel's memory; the same on all (K, M, "
           "G)"),
    NUMBER(GPU_ARENA, KIND_BYTES, "128M", 8 << 20, 4e9,
           "bytes per GPU rank for copies of operands and results of kernels; the same on all (K, "
           "M, G)"),
    NUMBER(SYNC, KIND_INTEGER, "0", 0, 1,
           "1: a program on GPUs waits in each call and fails there; 0: at the next call or check"),
};

static struct {
    char text[VALUE_BYTES]; /* as it was given, or the fallback */
    double number;          /* what a number says; of a choice its place in `choices` */
    int from_environment;   /* not the fallback */
} values[ORIEL_OPT_COUNT];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int loaded;
static uint64_t warned[WARNED_MAX]; /* hashes of unknown names already named */
static int warned_count;

/* ---- parsing ----------------------------------------------------------- */

static double unit_of(char suffix)
{
    switch (toupper((unsigned char)suffix)) {
    case 'K':
        return 1024.0;
    case 'M':
        return 1024.0 * 1024.0;
    case 'G':
        return 1024.0 * 1024.0 * 1024.0;
    default:
        return 0;
    }
}

static int parse_number(int id, const char *text, double *number_p)
{
    char *end;
    double number = strtod(text, &end);

    if (end == text || !isfinite(number))
        return -1;
    if (table[id].kind == KIND_BYTES && *end != '\0') {
        number *= unit_of(*end++);
        if (number == 0)
            return -1;
    }
    if (*end != '\0' || number < table[id].min || number > table[id].max)
        return -1;
    if (table[id].kind != KIND_SECONDS && number != floor(number))
        return -1;
    *number_p = number;
    return 0;
}

static int parse_choice(int id, const char *text, double *number_p)
{
    for (int i = 0; table[id].choices[i] != NULL; i++) {
        if (strcmp(text, table[id].choices[i]) == 0) {
            *number_p = i;
            return 0;
        }
    }
    return -1;
}

static int parse(int id, const char *text, double *number_p)
{
    *number_p = -1;
    if (text[0] == '\0')
        return 0;
    switch (table[id].kind) {
    case KIND_SECONDS:
    case KIND_BYTES:
    case KIND_INTEGER:
        return parse_number(id, text, number_p);
    case KIND_CHOICE:
        return parse_choice(id, text, number_p);
    case KIND_TEXT:
    case KIND_SECRET:
        break;
    }
    return strlen(text) < VALUE_BYTES ? 0 : -1;
}

static oriel_status refuse_choice(int id, const char *text)
{
    char choices[80] = "";

    for (int i = 0; table[id].choices[i] != NULL; i++) {
        size_t used = strlen(choices);

        snprintf(choices + used, sizeof choices - used, "%s%s", i > 0 ? ", " : "",
                 table[id].choices[i]);
    }
    return oriel_fail(ORIEL_ERR_INVALID, "%s=\"%.80s\" is none of %s", table[id].name, text,
                      choices);
}

/* A bound as a person writes it: 64K, 1048576, 4e9. */
static const char *bound_text(int id, double bound, char text[24])
{
    static const char units[] = "GMK";
    char *exponent;

    for (const char *unit = units; table[id].kind == KIND_BYTES && *unit != '\0'; unit++) {
        double times = bound / unit_of(*unit);

        if (times >= 1 && times < 1024 && times == floor(times)) {
            snprintf(text, 24, "%.0f%c", times, *unit);
            return text;
        }
    }
    snprintf(text, 24, bound == floor(bound) && bound < 1e8 ? "%.0f" : "%g", bound);
    exponent = strstr(text, "e+");
    if (exponent != NULL) {
        size_t skip = 2 + strspn(exponent + 2, "0");

        memmove(exponent + 1, exponent + skip, strlen(exponent + skip) + 1);
    }
    return text;
}

static oriel_status refuse(int id, const char *text)
{
    const char *name = table[id].name;
    char least[24];
    char most[24];

    switch (table[id].kind) {
    case KIND_SECONDS:
    case KIND_BYTES:
    case KIND_INTEGER:
        return oriel_fail(ORIEL_ERR_INVALID, "%s=\"%.80s\" is not a %s from %s to %s", name, text,
                          table[id].kind == KIND_INTEGER ? "whole number" : "number",
                          bound_text(id, table[id].min, least),
                          bound_text(id, table[id].max, most));
    case KIND_CHOICE:
        return refuse_choice(id, text);
    case KIND_TEXT:
    case KIND_SECRET:
        break;
    }
    return oriel_fail(ORIEL_ERR_INVALID, "%s has %zu bytes, more than %d", name, strlen(text),
                      VALUE_BYTES - 1);
}

/* An empty variable counts as unset. */
static oriel_status read_option(int id)
{
    const char *given = getenv(table[id].name);
    int from_environment = given != NULL && given[0] != '\0';
    const char *text = from_environment ? given : table[id].fallback;
    oriel_status st = ORIEL_OK;
    double number;

    if (parse(id, text, &number) != 0) {
        st = refuse(id, text);
        from_environment = 0;
        text = table[id].fallback;
        parse(id, text, &number);
    }
    /* Readers hold pointers: an unchanged text is not written again. */
    if (strcmp(values[id].text, text) != 0)
        snprintf(values[id].text, VALUE_BYTES, "%s", text);
    values[id].number = number;
    values[id].from_environment = from_environment;
    return st;
}

/* ---- names that are not in the table ------------------------------------ */

static int min3(int a, int b, int c)
{
    int m = a < b ? a : b;

    return m < c ? m : c;
}

/* Edit distance, of at most NAME_BYTES - 1 characters. */
static int distance(const char *a, const char *b)
{
    int row[NAME_BYTES];
    int length = (int)strlen(b);

    for (int j = 0; j <= length; j++)
        row[j] = j;
    for (int i = 0; a[i] != '\0'; i++) {
        int diagonal = row[0];

        row[0] = i + 1;
        for (int j = 0; j < length; j++) {
            int above = row[j + 1];

            row[j + 1] = min3(above + 1, row[j] + 1, diagonal + (a[i] != b[j]));
            diagonal = above;
        }
    }
    return row[length];
}

/* The known name with the fewest edits. */
static const char *nearest(const char *name)
{
    const char *best = table[0].name;
    int best_distance = distance(name, best);

    for (int id = 1; id < ORIEL_OPT_COUNT; id++) {
        int d = distance(name, table[id].name);

        if (d < best_distance) {
            best = table[id].name;
            best_distance = d;
        }
    }
    return best;
}

static int is_known(const char *name)
{
    for (int id = 0; id < ORIEL_OPT_COUNT; id++) {
        if (strcmp(table[id].name, name) == 0)
            return 1;
    }
    return 0;
}

/* Whether `name` is new; a full list counts as "already said". */
static int remember(const char *name)
{
    uint64_t hash = oriel_hash(name, strlen(name), 0);

    for (int i = 0; i < warned_count; i++) {
        if (warned[i] == hash)
            return 0;
    }
    if (warned_count == WARNED_MAX)
        return 0;
    warned[warned_count++] = hash;
    return 1;
}

static void warn_unknown(void)
{
    for (char **entry = environ; entry != NULL && *entry != NULL; entry++) {
        char name[NAME_BYTES];
        size_t length = strcspn(*entry, "=");

        if (strncmp(*entry, "ORIEL_", 6) != 0)
            continue;
        if (length >= sizeof(name))
            length = sizeof(name) - 1;
        memcpy(name, *entry, length);
        name[length] = '\0';
        if (!is_known(name) && remember(name))
            oriel_log(ORIEL_LOG_WARN,
                      "%s is no option of oriel and has no effect; "
                      "the nearest is %s",
                      name, nearest(name));
    }
}

/* ---- reading ------------------------------------------------------------ */

/* Call with the lock held. Of several bad values the last is reported. */
static oriel_status load_locked(void)
{
    oriel_status st = ORIEL_OK;

    for (int id = 0; id < ORIEL_OPT_COUNT; id++) {
        if (read_option(id) != ORIEL_OK)
            st = ORIEL_ERR_INVALID;
    }
    oriel_log_set_level((enum oriel_log_level)values[ORIEL_OPT_LOG].number);
    warn_unknown();
    loaded = 1;
    return st;
}

oriel_status oriel_config_load(void)
{
    oriel_status st;

    pthread_mutex_lock(&lock);
    st = load_locked();
    pthread_mutex_unlock(&lock);
    return st;
}

static void load_once(void)
{
    pthread_mutex_lock(&lock);
    if (!loaded && load_locked() != ORIEL_OK)
        oriel_log(ORIEL_LOG_WARN, "%s", oriel_last_error());
    pthread_mutex_unlock(&lock);
}

const char *oriel_config_string(enum oriel_option_id id)
{
    load_once();
    return values[id].text;
}

const char *oriel_config_choice(enum oriel_option_id id, int number)
{
    const char *const *names = table[id].choices;

    for (int i = 0; names != NULL && names[i] != NULL; i++) {
        if (i == number)
            return names[i];
    }
    return NULL;
}

double oriel_config_number(enum oriel_option_id id)
{
    double number;

    load_once();
    pthread_mutex_lock(&lock);
    number = values[id].number;
    pthread_mutex_unlock(&lock);
    return number;
}

oriel_status oriel_option_get(int index, oriel_option *option_p)
{
    int hidden;

    if (index < 0 || index >= ORIEL_OPT_COUNT)
        return oriel_fail(ORIEL_ERR_INVALID, "option %d of %d", index, ORIEL_OPT_COUNT);
    if (option_p == NULL)
        return oriel_fail(ORIEL_ERR_INVALID, "option_p is NULL");
    load_once();
    hidden = table[index].kind == KIND_SECRET && values[index].text[0] != '\0';
    option_p->name = table[index].name;
    option_p->value = hidden ? "(set)" : values[index].text;
    option_p->source = values[index].from_environment ? "environment" : "default";
    option_p->help = table[index].help;
    return ORIEL_OK;
}
