// Sampling, by its description: what an artifact's own kernel for it has to give.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

static const int VOCAB = 512;

static long choose_from(std::vector<double> logits, const signed char *seen, double draw,
                        const float *settings) {
  const double temperature = settings[0], top_p = settings[2], min_p = settings[3];
  const size_t top_k = (size_t)settings[1];
  for (int i = 0; i < VOCAB; i++)
    if (seen[i]) logits[i] = logits[i] > 0 ? logits[i] / settings[4] : logits[i] * settings[4];
  for (int i = 0; i < VOCAB; i++)
    if (std::isnan(logits[i])) return -1;
  std::vector<int> tokens(VOCAB);
  std::iota(tokens.begin(), tokens.end(), 0);
  std::stable_sort(tokens.begin(), tokens.end(), [&](int a, int b) { return logits[a] > logits[b]; });
  const double best = logits[tokens[0]];
  if (std::isinf(best)) return -1;
  if (temperature == 0) return tokens[0];
  size_t kept = VOCAB;
  if (top_k && top_k < VOCAB)
    for (kept = top_k; kept < VOCAB && logits[tokens[kept]] == logits[tokens[top_k - 1]];) kept++;
  std::vector<double> shares;
  for (size_t i = 0; i < kept; i++) shares.push_back(std::exp((logits[tokens[i]] - best) / temperature));
  const double whole = std::accumulate(shares.begin(), shares.end(), 0.0);
  double sum = 0;
  for (double &share : shares) share /= whole;
  if (top_p < 1)
    for (size_t i = 0; i < kept; i++)
      if ((sum += shares[i]) >= top_p) kept = i + 1;
  const double least = min_p * shares[0];
  while (kept > 1 && shares[kept - 1] < least) kept--;
  shares.resize(kept);
  const double rest = std::accumulate(shares.begin(), shares.end(), 0.0);
  sum = 0;
  for (size_t i = 0; i < kept; i++)
    if ((sum += shares[i] / rest) > draw) return tokens[i];
  return tokens[kept - 1];
}

static void choose_kernel(float *draws, float *logits, int *position, signed char *seen,
                          float *settings, int64_t *token, int64_t batch) {
  if (blockIdx.x || threadIdx.x) return;
  for (int64_t b = 0; b < batch; b++) {
    std::vector<double> row(logits + b * VOCAB, logits + (b + 1) * VOCAB);
    token[b] = choose_from(row, seen + b * VOCAB, draws[position[0]], settings);
  }
}
