/* Stochastic dual coordinate ascent for the smoothed hinge loss and L2 on CSR data, as compiled code would do it.

   P(w) = 1/n sum_i f(y_i x_i.w) + lam/2 |w|^2,  w = 1/(lam n) sum_i alpha_i y_i x_i,  0 <= alpha_i <= 1.
   Each epoch visits the rows in a new random order; the step on a row is the exact maximum of the dual. As in
   LIBLINEAR's dual solver, a row whose alpha rests at 0 or 1 by a margin is left out for the rest of the epochs, and
   before the last quarter of the epochs all rows return. */
#include <stdint.h>
#include <stdlib.h>

void sdca(int n, int d, const int *start, const int *index, const double *value, const double *y, double lam,
          double gamma, int epochs, int shrink, double *w)
{
    double scale = 1.0 / (lam * n), *alpha = calloc(n, sizeof *alpha), *norm = malloc(n * sizeof *norm);
    int *order = malloc(n * sizeof *order), active = n, all = (3 * epochs) / 4;
    uint64_t random = 88172645463325252ull;
    for (int j = 0; j < d; j++) w[j] = 0.0;
    for (int i = 0; i < n; i++) {
        double sum = 0.0;
        for (int k = start[i]; k < start[i + 1]; k++) sum += value[k] * value[k];
        norm[i] = sum * scale;
        order[i] = i;
    }
    for (int epoch = 0; epoch < epochs; epoch++) {
        if (epoch == all) active = n;
        for (int i = active - 1; i > 0; i--) {
            random ^= random << 13, random ^= random >> 7, random ^= random << 17;
            int j = (int)(random % (uint64_t)(i + 1)), held = order[i];
            order[i] = order[j], order[j] = held;
        }
        for (int at = 0; at < active; at++) {
            int i = order[at];
            double score = 0.0;
            for (int k = start[i]; k < start[i + 1]; k++) score += value[k] * w[index[k]];
            /* the derivative of the dual at alpha_i, times n */
            double slope = 1.0 - y[i] * score - gamma * alpha[i];
            double next = alpha[i] + slope / (norm[i] + gamma);
            next = next < 0.0 ? 0.0 : next > 1.0 ? 1.0 : next;
            if (next == alpha[i]) {
                double beyond = alpha[i] == 0.0 ? -slope : slope;
                if (shrink && epoch > 1 && epoch < all && beyond > 0.1) order[at] = order[--active], order[active] = i, at--;
                continue;
            }
            double step = (next - alpha[i]) * y[i] * scale;
            for (int k = start[i]; k < start[i + 1]; k++) w[index[k]] += step * value[k];
            alpha[i] = next;
        }
    }
    free(alpha), free(norm), free(order);
}
