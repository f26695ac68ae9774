#include "loadgen.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: loadgen --port N [options]\n"
    "A closed-loop load generator: one thread, HTTP/1.1 (or RESP), every answer checked.\n"
    "Prints one JSON object.\n\n"
    "where\n"
    "  --host A --port N        the server [127.0.0.1]\n"
    "  --connections N          keep-alive connections [64]\n"
    "  --depth N                requests sent in one write, their answers awaited [1]\n"
    "  --core N                 pin to this core [1]; -1: do not\n"
    "  --spin                   never sleep between events\n"
    "how long\n"
    "  --seconds S --warmup S   measured time [2], time before it [0]\n"
    "  --requests N             stop after N requests instead\n"
    "what is sent\n"
    "  --method M --path P      request line; further --path: for further connections in turn\n"
    "  --header 'K: V'          further header lines\n"
    "                           paths and headers may hold {topic} {key} {length} {cursor}\n"
    "  --topics N --keys N      {topic} takes N values in turn, {key} N values [0: all different]\n"
    "  --key-base N             first key\n"
    "  --resp 'XADD s * f'      speak RESP: this command with the payload as its last argument\n"
    "  --event-bytes N --event-jitter N --body-bytes N --pool-mib N --seed N\n"
    "                           generated events [1024, 0]; NDJSON bodies up to body-bytes\n"
    "                           [0: one event a request]; pool of different bodies [64]\n"
    "  --payload-file F         this file as every body\n"
    "  --payload-frames F       bodies as frames {u32 bytes, u32 events, bytes}\n"
    "  --no-body                requests without a body\n"
    "  --pool-out F             write the generated pool to F and stop\n"
    "what is read\n"
    "  --cursor-header H        follow this answer header (lower case) as {cursor}\n"
    "  --cursor-start C         the first {cursor} [earliest]; used again at the end of the data\n"
    "  --cursor-stop            a connection at the end of the data is finished\n"
    "  --discard                drop large bodies in the kernel, uncopied\n"
    "what is measured\n"
    "  --cpu-pid PID            CPU time of this process over the measured time (repeatable)\n"
    "  --cpu-core N             busy time of this core, by /proc/stat\n";

enum {
    OPT_HOST = 1, OPT_PORT, OPT_CONNECTIONS, OPT_DEPTH, OPT_CORE, OPT_SPIN, OPT_SECONDS,
    OPT_WARMUP, OPT_REQUESTS, OPT_METHOD, OPT_PATH, OPT_HEADER, OPT_TOPICS, OPT_KEYS, OPT_KEY_BASE,
    OPT_RESP, OPT_EVENT_BYTES, OPT_EVENT_JITTER, OPT_BODY_BYTES, OPT_POOL_MIB, OPT_SEED,
    OPT_PAYLOAD_FILE, OPT_PAYLOAD_FRAMES, OPT_NO_BODY, OPT_POOL_OUT, OPT_CURSOR_HEADER,
    OPT_CURSOR_START, OPT_CURSOR_STOP, OPT_DISCARD, OPT_CPU_PID, OPT_CPU_CORE, OPT_HELP,
};

static const struct option long_options[] = {
    {"host", 1, 0, OPT_HOST},
    {"port", 1, 0, OPT_PORT},
    {"connections", 1, 0, OPT_CONNECTIONS},
    {"depth", 1, 0, OPT_DEPTH},
    {"core", 1, 0, OPT_CORE},
    {"spin", 0, 0, OPT_SPIN},
    {"seconds", 1, 0, OPT_SECONDS},
    {"warmup", 1, 0, OPT_WARMUP},
    {"requests", 1, 0, OPT_REQUESTS},
    {"method", 1, 0, OPT_METHOD},
    {"path", 1, 0, OPT_PATH},
    {"header", 1, 0, OPT_HEADER},
    {"topics", 1, 0, OPT_TOPICS},
    {"keys", 1, 0, OPT_KEYS},
    {"key-base", 1, 0, OPT_KEY_BASE},
    {"resp", 1, 0, OPT_RESP},
    {"event-bytes", 1, 0, OPT_EVENT_BYTES},
    {"event-jitter", 1, 0, OPT_EVENT_JITTER},
    {"body-bytes", 1, 0, OPT_BODY_BYTES},
    {"pool-mib", 1, 0, OPT_POOL_MIB},
    {"seed", 1, 0, OPT_SEED},
    {"payload-file", 1, 0, OPT_PAYLOAD_FILE},
    {"payload-frames", 1, 0, OPT_PAYLOAD_FRAMES},
    {"no-body", 0, 0, OPT_NO_BODY},
    {"pool-out", 1, 0, OPT_POOL_OUT},
    {"cursor-header", 1, 0, OPT_CURSOR_HEADER},
    {"cursor-start", 1, 0, OPT_CURSOR_START},
    {"cursor-stop", 0, 0, OPT_CURSOR_STOP},
    {"discard", 0, 0, OPT_DISCARD},
    {"cpu-pid", 1, 0, OPT_CPU_PID},
    {"cpu-core", 1, 0, OPT_CPU_CORE},
    {"help", 0, 0, OPT_HELP},
    {0, 0, 0, 0},
};

_Noreturn static void refuse(const char *sentence)
{
    fprintf(stderr, "loadgen: %s\n", sentence);
    exit(2);
}

static double number(const char *text)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= -1))
        refuse("an option that wants a number got something else; see --help");
    return value;
}

static const char **push(const char **list, uint32_t *count, uint32_t max)
{
    if (*count == max)
        refuse("too many --path, --header or --cpu-pid options");
    return &list[(*count)++];
}

/* Options of the payload and of reading: true if it was one. */
static bool payload_option(struct options *o, int which)
{
    switch (which) {
    case OPT_EVENT_BYTES: o->pool.event_bytes = (uint32_t)number(optarg); return true;
    case OPT_EVENT_JITTER: o->pool.event_jitter = (uint32_t)number(optarg); return true;
    case OPT_BODY_BYTES: o->pool.body_bytes = (uint32_t)number(optarg); return true;
    case OPT_POOL_MIB: o->pool.pool_bytes = (size_t)(number(optarg) * 1048576); return true;
    case OPT_SEED: o->pool.seed = (uint64_t)number(optarg); return true;
    case OPT_PAYLOAD_FILE: o->payload_file = optarg; return true;
    case OPT_PAYLOAD_FRAMES: o->payload_frames = optarg; return true;
    case OPT_NO_BODY: o->no_body = true; return true;
    case OPT_POOL_OUT: o->pool_out = optarg; return true;
    case OPT_CURSOR_HEADER: o->cursor_header = optarg; return true;
    case OPT_CURSOR_START: o->cursor_start = optarg; return true;
    case OPT_CURSOR_STOP: o->cursor_stop = true; return true;
    case OPT_DISCARD: o->discard = true; return true;
    default: return false;
    }
}

static void load_option(struct options *o, int which)
{
    switch (which) {
    case OPT_HOST: o->host = optarg; break;
    case OPT_PORT: o->port = (uint16_t)number(optarg); break;
    case OPT_CONNECTIONS: o->connections = (uint32_t)number(optarg); break;
    case OPT_DEPTH: o->depth = (uint32_t)number(optarg); break;
    case OPT_CORE: o->core = (int)number(optarg); break;
    case OPT_SPIN: o->spin = true; break;
    case OPT_SECONDS: o->seconds = number(optarg); break;
    case OPT_WARMUP: o->warmup = number(optarg); break;
    case OPT_REQUESTS: o->requests = (uint64_t)number(optarg); break;
    case OPT_METHOD: o->method = optarg; break;
    case OPT_PATH: *push(o->paths, &o->path_count, PATHS_MAX) = optarg; break;
    case OPT_HEADER: *push(o->headers, &o->header_count, HEADERS_MAX) = optarg; break;
    case OPT_TOPICS: o->topics = (uint64_t)number(optarg); break;
    case OPT_KEYS: o->keys = (uint64_t)number(optarg); break;
    case OPT_KEY_BASE: o->key_base = (uint64_t)number(optarg); break;
    case OPT_RESP: o->resp = true; o->resp_command = optarg; break;
    case OPT_CPU_CORE: o->cpu_core = (int)number(optarg); break;
    case OPT_CPU_PID:
        if (o->pid_count == PIDS_MAX)
            refuse("at most 8 --cpu-pid options");
        o->pids[o->pid_count++] = (int)number(optarg);
        break;
    case OPT_HELP: fputs(usage, stdout); exit(0);
    default: fputs(usage, stderr); exit(2);
    }
}

void options_parse(int argc, char **argv, struct options *out)
{
    *out = (struct options){
        .host = "127.0.0.1", .connections = 64, .depth = 1, .seconds = 2, .core = 1,
        .method = "POST", .cursor_start = "earliest", .cpu_core = -1,
        .pool = {.pool_bytes = 64 << 20, .event_bytes = 1024, .seed = 1},
    };
    int which;
    while ((which = getopt_long(argc, argv, "", long_options, NULL)) != -1)
        if (!payload_option(out, which))
            load_option(out, which);
    if (optind != argc)
        refuse("takes options only; see --help");
    if (out->path_count == 0)
        *push(out->paths, &out->path_count, PATHS_MAX) = "/";
    if (!out->port && !out->pool_out)
        refuse("--port is missing");
    if (out->connections < 1 || out->connections > 60000 || out->depth < 1 ||
        out->depth > DEPTH_MAX)
        refuse("--connections is 1 to 60000, --depth 1 to 256");
    if (out->topics > 10000)
        refuse("--topics is at most 10000");
    if (out->cursor_header && out->depth != 1)
        refuse("a cursor is followed with --depth 1 only");
    if (strlen(out->cursor_start) >= CURSOR_BYTES_MAX)
        refuse("--cursor-start is too long");
    if (out->pool.event_bytes < out->pool.event_jitter + POOL_EVENT_BYTES_MIN)
        refuse("events are of 96 bytes or more, jitter included");
}

static char *resp_template(const struct options *o)
{
    char *text = malloc(REQUEST_HEAD_BYTES_MAX * 2), *copy = strdup(o->resp_command), *save = NULL;
    size_t at = 0, count = 1;
    if (!text || !copy)
        return NULL;
    for (const char *p = o->resp_command; *p; p++)
        count += *p != ' ' && (p[1] == ' ' || !p[1]);
    at += (size_t)sprintf(text + at, "*%zu\r\n", count);
    for (char *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        size_t len = strlen(word);
        if (at + len + 32 > REQUEST_HEAD_BYTES_MAX / 2)
            refuse("the --resp command is too long");
        if (strstr(word, "{topic}"))
            len += TOPIC_DIGITS - strlen("{topic}");
        if (strstr(word, "{key}"))
            len += KEY_DIGITS - strlen("{key}");
        at += (size_t)sprintf(text + at, "$%zu\r\n%s\r\n", len, word);
    }
    sprintf(text + at, "${length}\r\n");
    free(copy);
    return text;
}

char *options_template(const struct options *o, uint32_t path)
{
    if (o->resp)
        return resp_template(o);
    size_t need = strlen(o->method) + strlen(o->paths[path]) + strlen(o->host) + 128;
    for (uint32_t i = 0; i < o->header_count; i++)
        need += strlen(o->headers[i]) + 2;
    char *text = malloc(need);
    if (!text)
        return NULL;
    size_t at = (size_t)snprintf(text, need, "%s %s HTTP/1.1\r\nHost: %s:%u\r\n", o->method,
                                 o->paths[path], o->host, o->port);
    for (uint32_t i = 0; i < o->header_count; i++)
        at += (size_t)snprintf(text + at, need - at, "%s\r\n", o->headers[i]);
    snprintf(text + at, need - at, "%s\r\n", o->no_body ? "" : "Content-Length: {length}\r\n");
    return text;
}
