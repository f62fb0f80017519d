/* The hosts of `oriel run --hosts`: which process runs where, and the shell script that starts
 * it there. The script goes to a shell on the host as its input, so that neither the secret nor
 * the arguments stand on a command line there. */
#ifndef ORIEL_TOOLS_HOSTS_H
#define ORIEL_TOOLS_HOSTS_H

#include <stddef.h>

enum { HOSTS_MAX = 1024, HOSTS_SHELL_MAX = 32, HOSTS_SCRIPT_MAX = 60 << 10 };

typedef struct oriel_host {
    const char *name; /* as the shell's command takes it */
    int count;        /* processes there */
} oriel_host;

typedef struct oriel_hosts {
    char *text;                      /* the names point into it */
    oriel_host hosts[HOSTS_MAX];     /* in the order of the list */
    int n;                           /* so many of them */
    int count;                       /* processes in all */
    char *shell;                     /* words point into it */
    char *words[HOSTS_SHELL_MAX];    /* the command that runs a shell on a host, without the host */
    int num_words;                   /* so many of them */
    char *argv[HOSTS_SHELL_MAX + 3]; /* of the last process asked for */
} oriel_hosts;

/* `list` is "a,b:4,…": processes 0, 1, … run on the hosts in this order, `each` where a host has
 * no number of its own. `shell`: words of the command, such as "ssh -T". -1: a sentence was
 * written to `why`. */
int oriel_hosts_create(const char *list, const char *shell, int each, oriel_hosts **hosts_p,
                       char *why, size_t why_bytes);
void oriel_hosts_destroy(oriel_hosts *hosts);

/* What starts a shell where process i runs; valid until the next call. */
char **oriel_hosts_argv(oriel_hosts *hosts, int i);
/* What that shell is told. `env` are the job's variables, "NAME=value", NULL ends them; the
 * caller's own ORIEL_*, NCCL_*, JAX_* and XLA_* variables go along. Returns its length, or -1:
 * it is longer than HOSTS_SCRIPT_MAX. */
int oriel_hosts_script(char *const *env, char *const *argv, char *script_p);

/* The address of this machine that the first host sees, or -1; `why_p`: why the host's own is not
 * known, or NULL. */
int oriel_hosts_address(const oriel_hosts *hosts, char *address_p, size_t bytes,
                        const char **why_p);

#endif
