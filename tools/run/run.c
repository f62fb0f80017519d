/* `oriel run`: its arguments, and the store that the processes meet in. */
#include "tool.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sys.h"
#include "core/store/store.h"
#include "doctor/job.h"

enum { COUNT_MAX = 1024, SECRET_BYTES = 32 };

const char oriel_run_help[] =
    "usage: oriel run -n N [options] [--] command [arguments]\n"
    "       oriel run --hosts HOST[:N],... [options] [--] command [arguments]\n"
    "\n"
    "Starts N processes of `command` on this machine and gives each what it needs to\n"
    "find the others (ORIEL_PROCESS_ID, ORIEL_NUM_PROCESSES, ORIEL_STORE,\n"
    "ORIEL_SECRET). Their lines come out tagged with the process's number, stdout on\n"
    "stdout and stderr on stderr; their input is /dev/null.\n"
    "\n"
    "  -n N             how many, 1 to 1024; with --hosts: on each host that has no\n"
    "                   number of its own (default 1)\n"
    "  --hosts LIST     start them on these hosts, N on HOST:N, through ssh, in the same\n"
    "                   folder; ORIEL_*, NCCL_*, JAX_* and XLA_* variables go along\n"
    "  --ssh COMMAND    what runs a shell on a host, whose name is added (default\n"
    "                   \"ssh -T -o BatchMode=yes\")\n"
    "  --address A      this machine's address as the hosts see it, where they find the\n"
    "                   store (default: the one that the first host is reached from)\n"
    "  --timeout S      end the run after S seconds, with exit code 124\n"
    "  --grace S        when a process fails, give the others S seconds to end by\n"
    "                   themselves before SIGTERM, and 2 more before SIGKILL (default 5)\n"
    "  --log-dir DIR    also write the lines of process i to DIR/i.log\n"
    "  --no-tag         pass the lines on without tags\n"
    "  --help           this text\n"
    "\n"
    "Ctrl-C, SIGTERM and SIGHUP are passed on; after the grace, or at the second\n"
    "Ctrl-C, whatever is left is killed. No process is left behind.\n"
    "\n"
    "exit code: 0 when every process exits with 0, else that of the first that failed\n"
    "(128 + the signal for one that was killed); 124 for --timeout, 126 or 127 when the\n"
    "command cannot be started or is not there, 130 for Ctrl-C, 143 for SIGTERM, 2 for\n"
    "wrong arguments, 1 when `oriel run` itself cannot do its work.\n";

/* ---- arguments ---------------------------------------------------------- */

static int parse_count(const char *text, int *count_p)
{
    char *end;
    long value;

    errno = 0;
    value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || value < 1 || value > COUNT_MAX)
        return oriel_usage_error("run", "-n takes a whole number from 1 to %d, not \"%s\"",
                                 COUNT_MAX, text);
    *count_p = (int)value;
    return ORIEL_EXIT_OK;
}

static int parse_seconds(const char *option, const char *text, double least, double *seconds_p)
{
    const double most = 1e9;
    char *end;
    double value = strtod(text, &end);

    if (end == text || *end != '\0' || !isfinite(value) || value < least || value > most)
        return oriel_usage_error("run", "%s takes seconds from %g to %g, not \"%s\"", option, least,
                                 most, text);
    *seconds_p = value;
    return ORIEL_EXIT_OK;
}

static int parse_option(int option, char **argv, oriel_job_params *params)
{
    switch (option) {
    case 'n':
        return parse_count(optarg, &params->count);
    case 't':
        return parse_seconds("--timeout", optarg, 0.001, &params->timeout_s);
    case 'g':
        return parse_seconds("--grace", optarg, 0, &params->grace_s);
    case 'l':
        params->log_dir = optarg;
        return ORIEL_EXIT_OK;
    case 'T':
        params->tag = 0;
        return ORIEL_EXIT_OK;
    case 'H':
        params->host_list = optarg;
        return ORIEL_EXIT_OK;
    case 's':
        params->shell = optarg;
        return ORIEL_EXIT_OK;
    case 'a':
        params->address = optarg;
        return ORIEL_EXIT_OK;
    case ':':
        return oriel_usage_error("run", "%s needs a value", argv[optind - 1]);
    default:
        /* A short option may be one letter of a word that is not done yet. */
        if (strncmp(argv[optind - 1], "--", 2) != 0)
            return oriel_usage_error("run", "there is no option \"-%c\"", optopt);
        return oriel_usage_error("run", "there is no option \"%s\"", argv[optind - 1]);
    }
}

/* Stops at the first word that is no option: the rest is the command. After
 * --help there is none. */
static int parse_arguments(int argc, char **argv, oriel_job_params *params)
{
    static const struct option options[] = {
        {.name = "timeout", .has_arg = required_argument, .val = 't'},
        {.name = "grace", .has_arg = required_argument, .val = 'g'},
        {.name = "log-dir", .has_arg = required_argument, .val = 'l'},
        {.name = "no-tag", .has_arg = no_argument, .val = 'T'},
        {.name = "hosts", .has_arg = required_argument, .val = 'H'},
        {.name = "ssh", .has_arg = required_argument, .val = 's'},
        {.name = "address", .has_arg = required_argument, .val = 'a'},
        {.name = "help", .has_arg = no_argument, .val = 'h'},
        {0},
    };
    int option;
    int code;

    opterr = 0;
    while ((option = getopt_long(argc, argv, "+:n:h", options, NULL)) != -1) {
        if (option == 'h') {
            fputs(oriel_run_help, stdout);
            return ORIEL_EXIT_OK;
        }
        code = parse_option(option, argv, params);
        if (code != ORIEL_EXIT_OK)
            return code;
    }
    if (params->count == 0 && params->host_list == NULL)
        return oriel_usage_error("run", "how many processes? -n N is missing");
    if (params->host_list == NULL && (params->shell != NULL || params->address != NULL))
        return oriel_usage_error("run", "--ssh and --address are for --hosts");
    if (optind == argc)
        return oriel_usage_error("run", "there is no command to start");
    params->argv = argv + optind;
    return ORIEL_EXIT_OK;
}

/* ---- the run ------------------------------------------------------------ */

static int secret_create(char hex[2 * SECRET_BYTES + 1])
{
    unsigned char bytes[SECRET_BYTES];

    if (oriel_sys_now->random(bytes, sizeof(bytes)) != 0)
        return -1;
    for (int i = 0; i < SECRET_BYTES; i++)
        sprintf(hex + 2 * (size_t)i, "%02x", bytes[i]);
    return 0;
}

static int run_processes(oriel_job *job, const oriel_inherited *inherited, const char *store,
                         const char *secret)
{
    oriel_spawner spawner;
    int code;

    if (oriel_spawner_create(job->params->argv, job->params->count, store, secret, inherited,
                             job->params->hosts, &spawner) != 0) {
        fprintf(stderr, "oriel run: cannot prepare the processes: %s\n", strerror(errno));
        return ORIEL_EXIT_FAILED;
    }
    job->store = store;
    job->secret = secret;
    oriel_job_start(job, &spawner);
    code = oriel_job_supervise(job);
    oriel_spawner_destroy(&spawner);
    return code;
}

static void say_unreachable(const oriel_hosts *hosts, const char *why)
{
    const char *name = hosts->hosts[0].name;

    if (why != NULL)
        fprintf(stderr,
                "oriel run: host %s is unknown here (%s); if %s knows it all the same, give this "
                "machine's address with --address\n",
                name, why, hosts->words[0]);
    else
        fprintf(stderr,
                "oriel run: this machine's address as host %s sees it is not to be found: give it "
                "with --address\n",
                name);
}

/* On this machine a socket that only this user reaches; hosts need an address. */
static int store_create(const oriel_job_params *params, const char *secret,
                        oriel_store_server **server_p)
{
    char host[128];
    char address[160] = "";
    const char *at = params->address;
    const char *why;

    if (params->hosts != NULL && at == NULL) {
        if (oriel_hosts_address(params->hosts, host, sizeof(host), &why) != 0) {
            say_unreachable(params->hosts, why);
            return -1;
        }
        at = host;
    }
    if (at != NULL)
        snprintf(address, sizeof(address), strchr(at, ':') != NULL ? "[%s]:0" : "%s:0", at);
    if (oriel_store_server_create(at != NULL ? address : NULL, secret, server_p) == ORIEL_OK)
        return 0;
    fprintf(stderr, "oriel run: cannot start the store: %s\n", oriel_last_error());
    return -1;
}

static int run_job(const oriel_job_params *params)
{
    char secret[2 * SECRET_BYTES + 1];
    oriel_store_server *server = NULL;
    oriel_inherited inherited;
    oriel_job *job = NULL;
    int code = ORIEL_EXIT_FAILED;

    oriel_inherited_save(&inherited);
    if (oriel_job_create(params, &job) != 0)
        return ORIEL_EXIT_FAILED;
    if (secret_create(secret) != 0)
        fprintf(stderr, "oriel run: no random bytes for the secret: %s\n", strerror(errno));
    else if (store_create(params, secret, &server) != 0)
        code = ORIEL_EXIT_FAILED;
    else
        code = run_processes(job, &inherited, oriel_store_server_address(server), secret);
    oriel_store_server_destroy(server, 0);
    oriel_job_destroy(job);
    return code;
}

static int find_hosts(oriel_job_params *params)
{
    const char *shell = params->shell != NULL ? params->shell : "ssh -T -o BatchMode=yes";
    char why[256];

    if (oriel_hosts_create(params->host_list, shell, params->count > 0 ? params->count : 1,
                           &params->hosts, why, sizeof(why)) != 0)
        return oriel_usage_error("run", "%s", why);
    params->count = params->hosts->count;
    if (params->count > COUNT_MAX)
        return oriel_usage_error("run", "%d processes; at most %d are possible", params->count,
                                 COUNT_MAX);
    return ORIEL_EXIT_OK;
}

int oriel_run_main(int argc, char **argv)
{
    oriel_job_params params = {.grace_s = 5, .tag = 1};
    int code = parse_arguments(argc, argv, &params);

    if (params.argv == NULL)
        return code;
    if (params.host_list != NULL) {
        code = find_hosts(&params);
        if (code != ORIEL_EXIT_OK)
            return code;
    }
    code = run_job(&params);
    oriel_hosts_destroy(params.hosts);
    return code;
}
