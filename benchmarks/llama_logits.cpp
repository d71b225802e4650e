// Writes llama.cpp's logits behind each token of texts: for accuracy.py, which says how it is built.
//
//     llama_logits MODEL TOKENS IDS OUTPUT
//
// IDS holds windows of TOKENS int32 ids each, OUTPUT gets float32, a row of the vocabulary for each.
// llama.cpp runs as it is by default, on two threads.

#include "llama.h"

#include <cstdio>
#include <cstdlib>
#include <vector>

static void require(bool good, const char * what) {
    if (!good) {
        std::fprintf(stderr, "llama_logits: %s\n", what);
        std::exit(1);
    }
}

int main(int argc, char ** argv) {
    require(argc == 5, "usage: llama_logits MODEL TOKENS IDS OUTPUT");
    llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
    llama_backend_init();
    llama_model * model = llama_model_load_from_file(argv[1], llama_model_default_params());
    require(model != nullptr, "the model cannot be loaded");
    const int tokens = std::atoi(argv[2]);
    const int width = llama_vocab_n_tokens(llama_model_get_vocab(model));
    llama_context_params params = llama_context_default_params();
    params.n_ctx = params.n_batch = params.n_ubatch = tokens;
    params.n_threads = params.n_threads_batch = 2;
    llama_context * context = llama_init_from_model(model, params);
    require(context != nullptr, "there is no context");
    std::FILE * input = std::fopen(argv[3], "rb");
    std::FILE * output = std::fopen(argv[4], "wb");
    require(input != nullptr && output != nullptr, "a file cannot be opened");
    llama_batch batch = llama_batch_init(tokens, 0, 1);
    std::vector<llama_token> ids(tokens);
    while (std::fread(ids.data(), sizeof(llama_token), tokens, input) == size_t(tokens)) {
        llama_memory_clear(llama_get_memory(context), true);
        batch.n_tokens = tokens;
        for (int i = 0; i < tokens; i++) {
            batch.token[i] = ids[i];
            batch.pos[i] = i;
            batch.n_seq_id[i] = 1;
            batch.seq_id[i][0] = 0;
            batch.logits[i] = 1;
        }
        require(llama_decode(context, batch) == 0, "llama_decode fails");
        const size_t count = size_t(tokens) * width;
        require(std::fwrite(llama_get_logits(context), 4, count, output) == count, "disk full");
    }
    require(std::fclose(output) == 0, "disk full");
    return 0;
}
