/* llama_speed.c - prefill and decode of llama.cpp through its public C interface, as lines of docs/results-schema.md.
 *
 *   llama_speed MODEL.gguf [-l 512,4096] [-u 512,2048] [-n 64] [-s 3] [-g LAYERS] [-t THREADS]
 *
 * For each micro-batch of -u and each length of -l: the whole prompt into empty memory, flash attention on, logits of
 * its last token alone; then -n steps of one token at that depth, logits read after each.  -s samples, and one before
 * them that is not counted.  Token ids are random: speed does not depend on them. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ggml-backend.h"
#include "llama.h"

enum { MAX_LIST = 16, MAX_SAMPLES = 64, DECODE_AHEAD = 4 };

typedef struct list {
    int n, at[MAX_LIST];
} list;

typedef struct options {
    const char *model;
    list lengths, micro;
    int decode, samples, layers, threads;
} options;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static llama_token random_token(uint64_t *seed, int n_vocab)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return (llama_token)(*seed % (uint64_t)n_vocab);
}

static bool read_list(list *l, char *text)
{
    l->n = 0;
    for (char *s = strtok(text, ","); s; s = strtok(NULL, ",")) {
        if (l->n == MAX_LIST || atoi(s) < 1) return false;
        l->at[l->n++] = atoi(s);
    }
    return l->n > 0;
}

static bool read_options(options *o, int argc, char **argv)
{
    *o = (options){.lengths = {1, {512}}, .micro = {1, {512}}, .decode = 64, .samples = 3, .layers = 999, .threads = 4};
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] != '-') {
            o->model = argv[i];
            continue;
        }
        if (i + 1 == argc) return false;
        const char option = argv[i++][1];
        if (option == 'l' ? !read_list(&o->lengths, argv[i]) : option == 'u' ? !read_list(&o->micro, argv[i]) : false) return false;
        if (option == 'n') o->decode = atoi(argv[i]);
        if (option == 's') o->samples = atoi(argv[i]);
        if (option == 'g') o->layers = atoi(argv[i]);
        if (option == 't') o->threads = atoi(argv[i]);
        if (!strchr("lunsgt", option)) return false;
    }
    return o->model && o->samples > 0 && o->samples <= MAX_SAMPLES && o->decode > 0;
}

/* Seconds for the prompt and for one token after it. */
static bool sample(struct llama_context *c, int length, int decode, uint64_t *seed, double *prompt_s, double *token_s)
{
    const int n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(llama_get_model(c))), most = (int)llama_n_batch(c);
    llama_token *tokens = malloc(sizeof *tokens * (size_t)length);
    if (!tokens) return false;
    for (int i = 0; i < length; i++) tokens[i] = random_token(seed, n_vocab);
    llama_memory_clear(llama_get_memory(c), true);
    llama_synchronize(c);
    bool ok = true;
    double start = now();
    for (int i = 0; ok && i < length; i += most)
        ok = llama_decode(c, llama_batch_get_one(tokens + i, length - i < most ? length - i : most)) == 0;
    llama_synchronize(c);
    *prompt_s = now() - start;
    free(tokens);
    for (int i = -DECODE_AHEAD; ok && i < decode; i++) {
        if (i == 0) start = now();
        llama_token token = random_token(seed, n_vocab);
        ok = llama_decode(c, llama_batch_get_one(&token, 1)) == 0;
        llama_synchronize(c);
        const float first = llama_get_logits_ith(c, -1)[0];
        ok = ok && first == first;
    }
    *token_s = (now() - start) / decode;
    return ok;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_line(const char *phase, int length, int micro, const double *rate, int n)
{
    char when[32];
    const time_t date = time(NULL);
    double sorted[MAX_SAMPLES];
    memcpy(sorted, rate, sizeof *rate * (size_t)n);
    qsort(sorted, (size_t)n, sizeof *sorted, by_size);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime(&date));
    printf("{\"engine\": \"llama.cpp\", \"date\": \"%s\", \"micro_batch\": %d, \"phase\": \"%s\", \"context\": %d, \"tok_s\": %.6g, "
           "\"samples\": [", when, micro, phase, length, (sorted[(n - 1) / 2] + sorted[n / 2]) / 2);
    for (int i = 0; i < n; i++) printf("%s%.6g", i ? ", " : "", rate[i]);
    printf("]}\n");
    fflush(stdout);
}

static bool measure(const options *o, struct llama_model *m, int micro)
{
    int longest = 0;
    for (int i = 0; i < o->lengths.n; i++)
        if (o->lengths.at[i] > longest) longest = o->lengths.at[i];
    struct llama_context_params p = llama_context_default_params();
    p.n_ctx = (uint32_t)((longest + o->decode + DECODE_AHEAD + 255) / 256 * 256);
    p.n_ubatch = (uint32_t)micro;
    p.n_batch = micro > 2048 ? (uint32_t)micro : 2048;
    p.n_seq_max = 1;
    p.n_threads = p.n_threads_batch = o->threads;
    p.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    struct llama_context *c = llama_init_from_model(m, p);
    if (!c) return false;
    uint64_t seed = 88172645463325252ull;
    bool ok = true;
    for (int i = 0; ok && i < o->lengths.n; i++) {
        double prefill[MAX_SAMPLES], decode[MAX_SAMPLES];
        for (int s = -1; ok && s < o->samples; s++) {
            double prompt_s, token_s;
            ok = sample(c, o->lengths.at[i], o->decode, &seed, &prompt_s, &token_s);
            if (s < 0) continue;
            prefill[s] = o->lengths.at[i] / prompt_s;
            decode[s] = 1 / token_s;
        }
        if (!ok) break;
        print_line("prefill", o->lengths.at[i], micro, prefill, o->samples);
        print_line("decode", o->lengths.at[i], micro, decode, o->samples);
    }
    llama_free(c);
    return ok;
}

static void say_errors(enum ggml_log_level level, const char *text, void *user)
{
    (void)user;
    if (level >= GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}

int main(int argc, char **argv)
{
    options o;
    if (!read_options(&o, argc, argv)) {
        fprintf(stderr, "usage: llama_speed MODEL.gguf [-l LENGTHS] [-u MICRO_BATCHES] [-n DECODE] [-s SAMPLES] [-g LAYERS] [-t THREADS]\n");
        return 2;
    }
    llama_log_set(say_errors, NULL);
    ggml_backend_load_all();
    llama_backend_init();
    if (o.layers > 0 && !ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_GPU)) {
        fprintf(stderr, "llama.cpp finds no GPU; -g 0 measures the CPU\n");
        return 1;
    }
    struct llama_model_params p = llama_model_default_params();
    p.n_gpu_layers = o.layers;
    const double start = now();
    struct llama_model *m = llama_model_load_from_file(o.model, p);
    if (!m) return 1;
    char text[128];
    llama_model_desc(m, text, sizeof text);
    fprintf(stderr, "%s, %.2f GB, loaded in %.1f s; %s\n", text, (double)llama_model_size(m) / 1e9, now() - start,
            llama_print_system_info());
    bool ok = true;
    for (int i = 0; ok && i < o.micro.n; i++) ok = measure(&o, m, o.micro.at[i]);
    llama_model_free(m);
    return ok ? 0 : 1;
}
