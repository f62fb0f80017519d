#include "run/hosts.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- the list ----------------------------------------------------------- */

static int add_host(oriel_hosts *hosts, char *word, int each, char *why, size_t why_bytes)
{
    char *colon = strrchr(word, ':');
    oriel_host *host = &hosts->hosts[hosts->n];
    char *end = NULL;

    /* A v6 address has colons of its own: [fe80::1]:4 */
    if (colon != NULL && colon != strchr(word, ':') && colon > word && colon[-1] != ']')
        colon = NULL;
    host->name = word;
    host->count = each;
    if (colon != NULL) {
        long count = strtol(colon + 1, &end, 10);

        *colon = '\0';
        host->count = end == colon + 1 || *end != '\0' || count > HOSTS_MAX ? 0 : (int)count;
    }
    if (word[0] == '\0' || word[0] == '-' || host->count < 1) {
        snprintf(why, why_bytes, "a host of --hosts is name or name:count, not \"%s%s%s\"", word,
                 colon != NULL ? ":" : "", colon != NULL ? colon + 1 : "");
        return -1;
    }
    hosts->n++;
    hosts->count += host->count;
    return 0;
}

static int split_shell(oriel_hosts *hosts)
{
    char *rest = NULL;

    for (char *word = strtok_r(hosts->shell, " ", &rest); word != NULL;
         word = strtok_r(NULL, " ", &rest)) {
        if (hosts->num_words == HOSTS_SHELL_MAX)
            return -1;
        hosts->words[hosts->num_words++] = word;
    }
    return hosts->num_words > 0 ? 0 : -1;
}

int oriel_hosts_create(const char *list, const char *shell, int each, oriel_hosts **hosts_p,
                       char *why, size_t why_bytes)
{
    oriel_hosts *hosts = calloc(1, sizeof(*hosts));
    char *rest = NULL;
    int bad = 0;

    snprintf(why, why_bytes, "no memory for the hosts");
    if (hosts == NULL)
        return -1;
    hosts->text = strdup(list);
    hosts->shell = strdup(shell);
    if (hosts->text == NULL || hosts->shell == NULL)
        goto err_destroy;
    snprintf(why, why_bytes, "--ssh takes a command of at most %d words", HOSTS_SHELL_MAX);
    if (split_shell(hosts) != 0)
        goto err_destroy;
    snprintf(why, why_bytes, "--hosts names no host, or more than %d", HOSTS_MAX);
    rest = hosts->text;
    for (char *word; !bad && (word = strsep(&rest, ",")) != NULL;)
        bad = hosts->n == HOSTS_MAX || add_host(hosts, word, each, why, why_bytes) != 0;
    if (bad || hosts->n == 0)
        goto err_destroy;
    *hosts_p = hosts;
    return 0;

err_destroy:
    oriel_hosts_destroy(hosts);
    return -1;
}

void oriel_hosts_destroy(oriel_hosts *hosts)
{
    if (hosts == NULL)
        return;
    free(hosts->text);
    free(hosts->shell);
    free(hosts);
}

/* ---- starting ----------------------------------------------------------- */

char **oriel_hosts_argv(oriel_hosts *hosts, int i)
{
    const oriel_host *host = hosts->hosts;
    int n = 0;

    while (i >= host->count)
        i -= (host++)->count;
    while (n < hosts->num_words) {
        hosts->argv[n] = hosts->words[n];
        n++;
    }
    hosts->argv[n++] = (char *)host->name;
    hosts->argv[n++] = (char *)"/bin/sh";
    hosts->argv[n] = NULL;
    return hosts->argv;
}

struct script {
    char *at;    /* HOSTS_SCRIPT_MAX bytes */
    size_t used; /* of them, without the zero byte */
    int full;    /* something did not fit */
};

static void put(struct script *script, const char *text)
{
    size_t len = strlen(text);

    if (script->used + len >= HOSTS_SCRIPT_MAX) {
        script->full = 1;
        return;
    }
    memcpy(script->at + script->used, text, len + 1);
    script->used += len;
}

/* In single quotes; one of its own ends them, comes quoted, and begins them anew. */
static void put_quoted(struct script *script, const char *text)
{
    char letter[2] = "";

    put(script, "'");
    for (; *text != '\0'; text++) {
        letter[0] = *text;
        put(script, *text == '\'' ? "'\\''" : letter);
    }
    put(script, "'");
}

static void put_variable(struct script *script, const char *entry)
{
    size_t name = strcspn(entry, "=");

    if (entry[name] == '\0' || strspn(entry, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                             "0123456789_") != name)
        return;
    put(script, "export ");
    for (size_t i = 0; i < name; i++)
        put(script, (char[2]){entry[i], '\0'});
    put(script, "=");
    put_quoted(script, entry + name + 1);
    put(script, "\n");
}

static int goes_along(const char *entry)
{
    static const char *const prefixes[] = {"ORIEL_", "NCCL_", "JAX_", "XLA_"};

    for (size_t i = 0; i < sizeof(prefixes) / sizeof(*prefixes); i++) {
        if (strncmp(entry, prefixes[i], strlen(prefixes[i])) == 0)
            return 1;
    }
    return 0;
}

/* The process has a group of its own, where there is setsid. When the shell's input ends,
 * because the launcher wants it or is gone, the group is ended. */
static const char body[] =
    "exec 3<&0 0</dev/null\n"
    "if command -v setsid >/dev/null 2>&1; then\n"
    "  setsid \"$@\" 3<&- & group=-$!\n"
    "else\n"
    "  \"$@\" 3<&- & group=$!\n"
    "fi\n"
    "child=$!\n"
    "(while read -r line <&3; do :; done; kill -TERM $group; sleep 2; kill -KILL $group)"
    " >/dev/null 2>&1 & guard=$!\n"
    "exec 3<&-\n"
    "wait $child\n"
    "code=$?\n"
    "kill -KILL $guard 2>/dev/null\n"
    "exit $code\n";

int oriel_hosts_script(char *const *env, char *const *argv, char *script_p)
{
    struct script script = {.at = script_p};
    char *folder = getcwd(NULL, 0);

    for (char **entry = environ; *entry != NULL; entry++) {
        if (goes_along(*entry))
            put_variable(&script, *entry);
    }
    for (; *env != NULL; env++)
        put_variable(&script, *env);
    put(&script, "cd ");
    put_quoted(&script, folder != NULL ? folder : "/");
    put(&script, " || exit 126\nset --");
    for (; *argv != NULL; argv++) {
        put(&script, " ");
        put_quoted(&script, *argv);
    }
    put(&script, "\n");
    /* One command, so that the shell has read all of it before it runs any. */
    put(&script, "{\n");
    put(&script, body);
    put(&script, "}\n");
    free(folder);
    return script.full ? -1 : (int)script.used;
}

/* ---- where the hosts find us --------------------------------------------- */

/* The system is asked which address it would send from; nothing is sent. */
static int source_address(const struct addrinfo *to, char *address_p, size_t bytes)
{
    struct sockaddr_storage from;
    socklen_t len = sizeof(from);
    int fd = socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int found = fd >= 0 && connect(fd, to->ai_addr, to->ai_addrlen) == 0 &&
                getsockname(fd, (struct sockaddr *)&from, &len) == 0 &&
                getnameinfo((struct sockaddr *)&from, len, address_p, (socklen_t)bytes, NULL, 0,
                            NI_NUMERICHOST) == 0;

    if (fd >= 0)
        close(fd);
    return found;
}

int oriel_hosts_address(const oriel_hosts *hosts, char *address_p, size_t bytes, const char **why_p)
{
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM};
    struct addrinfo *list = NULL;
    const char *name = hosts->hosts[0].name;
    const char *at = strrchr(name, '@'); /* user@host */
    int unknown = getaddrinfo(at != NULL ? at + 1 : name, "9", &hints, &list);
    int found = 0;

    *why_p = unknown != 0 ? gai_strerror(unknown) : NULL;
    if (unknown != 0)
        return -1;
    for (const struct addrinfo *entry = list; entry != NULL && !found; entry = entry->ai_next)
        found = source_address(entry, address_p, bytes);
    freeaddrinfo(list);
    return found ? 0 : -1;
}
