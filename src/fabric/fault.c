/* The fault fabric: wraps another and delays, drops or fails the N-th call of one of
 * its slots, as ORIEL_FAULT says, so that users can test their own recovery.
 *
 * Calls are counted for the life of the process, not of a comm: a fault that has
 * struck does not strike the comm that is made after it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/sys.h"
#include "fabric/fabric.h"

enum { MAX_RULES = 16, MAX_HELD = 64, SPEC_BYTES = 512 };

enum slot {
    PROBE,
    SEGMENT_CREATE,
    PORT_CREATE,
    PORT_SERVE,
    SEGMENT_FETCH,
    MEMBER_JOIN,
    MEMBER_ALIVE,
    MEMORY_READ,
    OPERATION,
    SLOTS
};

static const struct {
    const char *name; /* as ORIEL_FAULT has it */
    int asks_a_peer;  /* so that a request, or its answer, can get lost */
} slots[SLOTS] = {
    [PROBE] = {"probe", 0},
    [SEGMENT_CREATE] = {"segment_create", 0},
    [PORT_CREATE] = {"port_create", 0},
    [PORT_SERVE] = {"port_serve", 1},
    [SEGMENT_FETCH] = {"segment_fetch", 1},
    [MEMBER_JOIN] = {"member_join", 0},
    [MEMBER_ALIVE] = {"member_alive", 1},
    [MEMORY_READ] = {"memory_read", 0},
    [OPERATION] = {"operation", 1},
};

enum action { PASS, FAIL, DROP, DELAY };

struct rule {
    enum slot slot;         /* what it strikes */
    unsigned long from, to; /* calls, counted from 1 */
    enum action action;     /* what it does */
    double seconds;         /* of a delay */
    int process;            /* -1: all */
    int told;               /* one line in the log for each rule */
};

static struct {
    pthread_mutex_t lock;         /* held while the rest is changed */
    const oriel_fabric *inner;    /* the fabric that is wrapped */
    int process;                  /* this one's number */
    char spec[SPEC_BYTES];        /* the text that the rules are of */
    struct rule rules[MAX_RULES]; /* in the order of the text */
    int num_rules;                /* so many of them */
    unsigned long calls[SLOTS];   /* so far */
    int held[MAX_HELD];           /* connections that get no answer */
    int num_held;                 /* so many of them */
} plan = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- the text of ORIEL_FAULT ----------------------------------------------------- */

static oriel_status parse_slot(const char *rule, size_t len, enum slot *slot_p)
{
    char known[200] = "";

    for (int s = 0; s < SLOTS; s++) {
        if (strlen(slots[s].name) == len && strncmp(rule, slots[s].name, len) == 0) {
            *slot_p = (enum slot)s;
            return ORIEL_OK;
        }
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", s > 0 ? ", " : "",
                 slots[s].name);
    }
    return oriel_fail(ORIEL_ERR_INVALID, "ORIEL_FAULT: \"%.*s\" in \"%s\" is none of %s", (int)len,
                      rule, rule, known);
}

/* "2" is the second call, "2+" that and all later ones. */
static oriel_status parse_calls(const char *rule, const char *text, size_t len, struct rule *rule_p)
{
    size_t digits = strspn(text, "0123456789");

    rule_p->from = strtoul(text, NULL, 10);
    rule_p->to = digits < len && text[digits] == '+' ? (unsigned long)-1 : rule_p->from;
    if (digits == 0 || digits > 9 || rule_p->from == 0 ||
        digits + (rule_p->to != rule_p->from) != len)
        return oriel_fail(ORIEL_ERR_INVALID,
                          "ORIEL_FAULT: \"%.*s\" in \"%s\" is no call: 1, 2 ..., or 2+ for the "
                          "second and all later",
                          (int)len, text, rule);
    return ORIEL_OK;
}

static oriel_status parse_action(const char *rule, const char *text, size_t len,
                                 struct rule *rule_p)
{
    char word[32];
    char *end;

    snprintf(word, sizeof word, "%.*s", (int)len, text);
    if (strcmp(word, "fail") == 0) {
        rule_p->action = FAIL;
    } else if (strcmp(word, "drop") == 0) {
        rule_p->action = DROP;
        if (!slots[rule_p->slot].asks_a_peer)
            return oriel_fail(ORIEL_ERR_INVALID,
                              "ORIEL_FAULT: \"%s\": %s asks no peer, so nothing can be dropped; "
                              "use fail or delay",
                              rule, slots[rule_p->slot].name);
    } else if (strncmp(word, "delay:", 6) == 0 && len < sizeof word) {
        rule_p->action = DELAY;
        rule_p->seconds = strtod(word + 6, &end);
        if (end == word + 6 || *end != '\0' || !isfinite(rule_p->seconds) || rule_p->seconds < 0)
            return oriel_fail(ORIEL_ERR_INVALID,
                              "ORIEL_FAULT: \"%s\" in \"%s\" are no seconds, as in delay:0.5",
                              word + 6, rule);
    } else {
        return oriel_fail(ORIEL_ERR_INVALID,
                          "ORIEL_FAULT: \"%.*s\" in \"%s\" is none of fail, drop, delay:SECONDS",
                          (int)len, text, rule);
    }
    return ORIEL_OK;
}

/* slot:call=action, or slot:call=action@process */
static oriel_status parse_rule(const char *text, struct rule *rule_p)
{
    const char *colon = strchr(text, ':');
    const char *equals = strchr(text, '=');
    const char *at = strchr(text, '@');
    struct rule rule = {.process = -1};
    oriel_status st;

    if (colon == NULL || equals == NULL || colon > equals || (at != NULL && at < equals))
        return oriel_fail(ORIEL_ERR_INVALID,
                          "ORIEL_FAULT: \"%s\" is not slot:call=action, as in segment_fetch:2=fail "
                          "or operation:10=delay:0.5@1",
                          text);
    st = parse_slot(text, (size_t)(colon - text), &rule.slot);
    if (st == ORIEL_OK)
        st = parse_calls(text, colon + 1, (size_t)(equals - colon - 1), &rule);
    if (st == ORIEL_OK)
        st = parse_action(text, equals + 1, at ? (size_t)(at - equals - 1) : strlen(equals + 1),
                          &rule);
    if (st != ORIEL_OK)
        return st;
    if (at != NULL) {
        size_t digits = strspn(at + 1, "0123456789");

        if (digits == 0 || digits > 6 || at[1 + digits] != '\0')
            return oriel_fail(ORIEL_ERR_INVALID,
                              "ORIEL_FAULT: \"%s\" in \"%s\" is no number of a process", at + 1,
                              text);
        rule.process = (int)strtol(at + 1, NULL, 10);
    }
    *rule_p = rule;
    return ORIEL_OK;
}

static oriel_status parse_spec(const char *spec, struct rule *rules, int *num_p)
{
    char copy[SPEC_BYTES];
    char *rest = NULL;
    int num = 0;

    snprintf(copy, sizeof copy, "%s", spec);
    for (char *text = strtok_r(copy, ", ", &rest); text != NULL;
         text = strtok_r(NULL, ", ", &rest)) {
        oriel_status st;

        if (num == MAX_RULES)
            return oriel_fail(ORIEL_ERR_INVALID, "ORIEL_FAULT: more than %d faults", MAX_RULES);
        st = parse_rule(text, &rules[num++]);
        if (st != ORIEL_OK)
            return st;
    }
    *num_p = num;
    return ORIEL_OK;
}

oriel_status oriel_fault_plan(const oriel_fabric *inner, const char *spec, int process)
{
    struct rule rules[MAX_RULES];
    int num;
    oriel_status st = parse_spec(spec, rules, &num);

    if (st != ORIEL_OK)
        return st;
    pthread_mutex_lock(&plan.lock);
    if (plan.inner != inner || plan.process != process || strcmp(plan.spec, spec) != 0) {
        plan.inner = inner;
        plan.process = process;
        snprintf(plan.spec, sizeof plan.spec, "%s", spec);
        memcpy(plan.rules, rules, (size_t)num * sizeof *rules);
        plan.num_rules = num;
        memset(plan.calls, 0, sizeof plan.calls);
    }
    pthread_mutex_unlock(&plan.lock);
    return ORIEL_OK;
}

/* ---- striking ---------------------------------------------------------------------- */

static void tell(const struct rule *rule, unsigned long call)
{
    static const char *const what[] = {[FAIL] = "fails", [DROP] = "is dropped"};

    if (rule->action == DELAY)
        oriel_log(ORIEL_LOG_WARN, "ORIEL_FAULT: call %lu of %s is delayed by %g s", call,
                  slots[rule->slot].name, rule->seconds);
    else
        oriel_log(ORIEL_LOG_WARN, "ORIEL_FAULT: call %lu of %s %s", call, slots[rule->slot].name,
                  what[rule->action]);
}

static void pause_for(double seconds)
{
    double until = oriel_now() + seconds;

    for (double left = seconds; left > 0.0; left = until - oriel_now())
        oriel_sys_now->poll(NULL, 0, left < 1.0 ? (int)ceil(left * 1e3) : 1000);
}

/* Counts a call and says what becomes of it; a delay has passed by then. */
static enum action strike(enum slot slot, unsigned long *call_p)
{
    struct rule rule = {.action = PASS};

    pthread_mutex_lock(&plan.lock);
    *call_p = ++plan.calls[slot];
    for (int i = 0; i < plan.num_rules && rule.action == PASS; i++) {
        struct rule *r = &plan.rules[i];

        if (r->slot != slot || *call_p < r->from || *call_p > r->to ||
            (r->process != -1 && r->process != plan.process))
            continue;
        rule = *r;
        r->told = 1;
    }
    pthread_mutex_unlock(&plan.lock);
    if (rule.action == PASS)
        return PASS;
    if (!rule.told)
        tell(&rule, *call_p);
    if (rule.action != DELAY)
        return rule.action;
    pause_for(rule.seconds);
    return PASS;
}

/* For slots that can only fail or be late. */
static oriel_status strike_local(enum slot slot)
{
    unsigned long call;

    if (strike(slot, &call) != FAIL)
        return ORIEL_OK;
    return oriel_fail(ORIEL_ERR_SYSTEM, "call %lu of %s failed, as ORIEL_FAULT asks", call,
                      slots[slot].name);
}

/* A failure of the wrapped fabric may follow from a fault that struck a peer. */
static oriel_status mark(oriel_status st)
{
    return st == ORIEL_OK ? ORIEL_OK : oriel_fail_in(st, "ORIEL_FAULT=\"%s\"", plan.spec);
}

/* ---- slots -------------------------------------------------------------------------- */

static oriel_status fault_probe(void)
{
    oriel_status st = strike_local(PROBE);

    return st == ORIEL_OK ? mark(plan.inner->probe()) : st;
}

static oriel_status fault_segment_create(size_t bytes, oriel_segment *segment_p)
{
    oriel_status st = strike_local(SEGMENT_CREATE);

    return st == ORIEL_OK ? mark(plan.inner->segment_create(bytes, segment_p)) : st;
}

static void fault_segment_close(oriel_segment *segment)
{
    plan.inner->segment_close(segment);
}

static oriel_status fault_port_create(oriel_port *port_p)
{
    oriel_status st = strike_local(PORT_CREATE);

    return st == ORIEL_OK ? mark(plan.inner->port_create(port_p)) : st;
}

static void fault_port_close(oriel_port *port)
{
    pthread_mutex_lock(&plan.lock);
    while (plan.num_held > 0)
        oriel_sys_now->close(plan.held[--plan.num_held]);
    pthread_mutex_unlock(&plan.lock);
    plan.inner->port_close(port);
}

/* Accepts and says nothing: the peer waits for its deadline. */
static void hold_peer(const oriel_port *port)
{
    int fd = oriel_sys_now->accept(port->fd);

    if (fd < 0)
        return;
    pthread_mutex_lock(&plan.lock);
    if (plan.num_held < MAX_HELD) {
        plan.held[plan.num_held++] = fd;
        fd = -1;
    }
    pthread_mutex_unlock(&plan.lock);
    if (fd >= 0)
        oriel_sys_now->close(fd);
}

static const oriel_segment *find_nothing(void *ctx, uint64_t id)
{
    (void)ctx;
    (void)id;
    return NULL;
}

static void fault_port_serve(oriel_port *port, oriel_segment_lookup lookup, void *ctx)
{
    unsigned long call;
    enum action action = strike(PORT_SERVE, &call);

    if (action == DROP)
        hold_peer(port);
    else
        plan.inner->port_serve(port, action == FAIL ? find_nothing : lookup, ctx);
}

static oriel_status fault_segment_fetch(const oriel_ticket *ticket, uint64_t id, size_t bytes,
                                        double timeout_s, oriel_segment *segment_p)
{
    unsigned long call;

    switch (strike(SEGMENT_FETCH, &call)) {
    case FAIL:
        return oriel_fail(ORIEL_ERR_SYSTEM, "call %lu of segment_fetch failed, as ORIEL_FAULT asks",
                          call);
    case DROP:
        pause_for(timeout_s);
        return oriel_fail(ORIEL_ERR_TIMEOUT,
                          "call %lu of segment_fetch had no answer within %.1f s, as ORIEL_FAULT "
                          "asks",
                          call, timeout_s);
    case PASS:
    case DELAY:
        break;
    }
    return mark(plan.inner->segment_fetch(ticket, id, bytes, timeout_s, segment_p));
}

static oriel_status fault_member_join(const oriel_segment *segment, int member)
{
    oriel_status st = strike_local(MEMBER_JOIN);

    return st == ORIEL_OK ? mark(plan.inner->member_join(segment, member)) : st;
}

static int fault_member_alive(const oriel_segment *segment, int member)
{
    unsigned long call;

    switch (strike(MEMBER_ALIVE, &call)) {
    case FAIL:
        return 0;
    case DROP:
        return 1;
    case PASS:
    case DELAY:
        break;
    }
    return plan.inner->member_alive(segment, member);
}

static oriel_status fault_memory_read(int pid, void *dst, const void *src, size_t bytes,
                                      const void *token, uint64_t *token_p)
{
    oriel_status st = strike_local(MEMORY_READ);

    return st == ORIEL_OK ? mark(plan.inner->memory_read(pid, dst, src, bytes, token, token_p))
                          : st;
}

static oriel_status fault_operation(void)
{
    unsigned long call;

    switch (strike(OPERATION, &call)) {
    case FAIL:
        return oriel_fail(ORIEL_ERR_SYSTEM, "call %lu of operation failed, as ORIEL_FAULT asks",
                          call);
    case DROP:
        return oriel_fail(ORIEL_ERR_TIMEOUT,
                          "call %lu of operation was dropped, as ORIEL_FAULT asks", call);
    case PASS:
    case DELAY:
        break;
    }
    return ORIEL_OK;
}

const oriel_fabric oriel_fabric_fault = {
    .name = "fault",
    .note = " (ORIEL_FAULT is set)",
    .injects = 1,
    .probe = fault_probe,
    .segment_create = fault_segment_create,
    .segment_close = fault_segment_close,
    .port_create = fault_port_create,
    .port_close = fault_port_close,
    .port_serve = fault_port_serve,
    .segment_fetch = fault_segment_fetch,
    .member_join = fault_member_join,
    .member_alive = fault_member_alive,
    .memory_read = fault_memory_read,
    .operation = fault_operation,
};
