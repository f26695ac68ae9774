#define _GNU_SOURCE
#include "loadgen.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double seconds(clockid_t clock)
{
    struct timespec t = {0};
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Busy time of one core in seconds: everything of /proc/stat but idle and waiting. */
static double core_seconds(int core)
{
    char line[256], name[16];
    double busy = 0;
    FILE *file = core >= 0 ? fopen("/proc/stat", "r") : NULL;
    snprintf(name, sizeof name, "cpu%d ", core);
    while (file && fgets(line, sizeof line, file)) {
        unsigned long long user, nice, system, idle, wait, irq, softirq;
        if (strncmp(line, name, strlen(name)) != 0)
            continue;
        if (sscanf(line + strlen(name), "%llu %llu %llu %llu %llu %llu %llu", &user, &nice,
                   &system, &idle, &wait, &irq, &softirq) == 7)
            busy = (double)(user + nice + system + irq + softirq) / (double)sysconf(_SC_CLK_TCK);
        break;
    }
    if (file)
        fclose(file);
    return busy;
}

/* A process's CPU clock counts all its threads, those of io_uring and those that ended included. */
void take_sample(const struct options *o, struct sample *out)
{
    out->wall = seconds(CLOCK_MONOTONIC);
    out->client = seconds(CLOCK_PROCESS_CPUTIME_ID);
    out->core = core_seconds(o->cpu_core);
    for (uint32_t i = 0; i < o->pid_count; i++) {
        clockid_t clock;
        out->pids[i] = clock_getcpuclockid(o->pids[i], &clock) == 0 ? seconds(clock) : 0;
    }
}

static void print_text(const char *name, const char *text)
{
    printf(", \"%s\": \"", name);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            printf("\\%c", c);
        else if (c < 0x20 || c >= 0x7F)
            printf("\\u%04x", c);
        else
            putchar(c);
    }
    putchar('"');
}

static void report(const struct loadgen *g)
{
    const struct counters *n = &g->counters;
    const struct options *o = &g->options;
    printf("{\"requests\": %lu, \"events\": %lu, \"bytes\": %lu, \"bytes_received\": %lu",
           n->requests, n->events, n->bytes_sent, n->bytes_received);
    printf(", \"seconds\": %.6f, \"errors\": %lu, \"reconnects\": %lu, \"ends\": %lu",
           g->stop.wall - g->start.wall, n->errors, g->reconnects, n->ends);
    static const struct {
        const char *name;
        double share;
    } quantiles[] = {{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p999", 0.999}};
    for (size_t i = 0; i < sizeof quantiles / sizeof quantiles[0]; i++)
        printf(", \"%s_us\": %.1f", quantiles[i].name,
               (double)histogram_quantile(&g->latency, quantiles[i].share) * 1e-3);
    printf(", \"max_us\": %.1f", (double)g->latency.max * 1e-3);
    printf(", \"client_cpu_seconds\": %.6f", g->stop.client - g->start.client);
    if (o->cpu_core >= 0)
        printf(", \"core_busy_seconds\": %.2f", g->stop.core - g->start.core);
    printf(", \"cpu_seconds\": {");
    for (uint32_t i = 0; i < o->pid_count; i++)
        printf("%s\"%d\": %.9f", i ? ", " : "", o->pids[i], g->stop.pids[i] - g->start.pids[i]);
    printf("}, \"statuses\": {");
    for (int i = 0, first = 1; i < 600; i++)
        if (n->statuses[i]) {
            printf("%s\"%d\": %lu", first ? "" : ", ", i, n->statuses[i]);
            first = 0;
        }
    printf("}");
    if (g->first_error[0])
        print_text("first_error", g->first_error);
    printf("}\n");
}

static void pin(int core)
{
    cpu_set_t set;
    if (core < 0)
        return;
    CPU_ZERO(&set);
    CPU_SET((size_t)core, &set);
    if (sched_setaffinity(0, sizeof set, &set) < 0)
        fprintf(stderr, "loadgen: cannot pin to core %d; running anywhere\n", core);
}

static int make_pool(struct loadgen *g)
{
    const struct options *o = &g->options;
    if (o->no_body)
        return 0;
    if (o->payload_file)
        return pool_load_file(&g->pool, o->payload_file);
    if (o->payload_frames)
        return pool_load_frames(&g->pool, o->payload_frames);
    return pool_generate(&g->pool, &o->pool);
}

static int write_pool(const struct loadgen *g)
{
    FILE *file = fopen(g->options.pool_out, "wb");
    if (!file)
        return -1;
    size_t written = fwrite(g->pool.bytes, 1, g->pool.len, file);
    return fclose(file) == 0 && written == g->pool.len ? 0 : -1;
}

int main(int argc, char **argv)
{
    static struct loadgen g;
    options_parse(argc, argv, &g.options);
    signal(SIGPIPE, SIG_IGN);
    pin(g.options.core);
    if (make_pool(&g) < 0) {
        fprintf(stderr, "loadgen: cannot make the payloads\n");
        return 1;
    }
    if (g.options.pool_out) {
        if (write_pool(&g) < 0)
            perror("loadgen: cannot write the pool");
        return 0;
    }
    for (uint32_t i = 0; i < g.options.path_count; i++) {
        char *text = options_template(&g.options, i);
        if (!text || request_compile(&g.templates[i], text) < 0) {
            fprintf(stderr, "loadgen: a request head of more than 1 KiB\n");
            return 2;
        }
        free(text);
    }
    int failed = loadgen_run(&g) < 0;
    if (!g.stopping)
        take_sample(&g.options, &g.stop);
    report(&g);
    return failed;
}
