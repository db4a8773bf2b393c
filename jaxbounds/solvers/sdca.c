/* Epochs of stochastic dual coordinate ascent over single rows, as an XLA FFI handler (see compiled_rows.py).

   max_alpha  -sum_i c_i f*(-alpha_i) - psi*(v),  v = sum_i c_i o_i alpha_i x_i,  w_j = soft(v_j, l1_j) inverse_j.
   The step on a row solves for alpha_i exactly under the curvature kappa_i = c_i sum_j inverse_j x_ij^2: with
   q = o_i x_i.w + offset_i and z = q - kappa_i alpha_i, the new alpha_i = -f'(z + kappa_i alpha_i). A row whose
   alpha_i did not move is left out until the last quarter of the epochs. */
#include "handler.h"

typedef struct {
    const double *kinks, *level, *slope; /* -f'(q) = level - slope q on the three pieces that the two kinks part */
    int logistic;
} Loss;

static double new_alpha(const Loss *f, double z, double kappa, double alpha)
{
    if (f->logistic) { /* u + z + kappa / (1 + exp(-u)) = 0 for u = log(alpha / (1 - alpha)), by guarded Newton steps */
        double low = -z - kappa, high = -z;
        double u = alpha > 0.0 && alpha < 1.0 ? log(alpha / (1.0 - alpha)) : -z - 0.5 * kappa;
        for (int k = 0; k < 60; k++) {
            if (!(u > low && u < high)) u = 0.5 * (low + high);
            double a = 1.0 / (1.0 + exp(-u)), value = u + z + kappa * a;
            if (value > 0.0) high = u; else low = u;
            double move = value / (1.0 + kappa * a * (1.0 - a));
            u -= move;
            if (fabs(move) <= 1e-13 * (1.0 + fabs(u))) break;
        }
        return 1.0 / (1.0 + exp(-u));
    }
    for (int k = 0; k < 2; k++) {
        double kink = f->kinks[k];
        if (z <= kink - kappa * (f->level[k] - f->slope[k] * kink))
            return (f->level[k] - f->slope[k] * z) / (1.0 + f->slope[k] * kappa);
        if (z < kink - kappa * (f->level[k + 1] - f->slope[k + 1] * kink)) return (kink - z) / kappa;
    }
    return (f->level[2] - f->slope[2] * z) / (1.0 + f->slope[2] * kappa);
}

#define EPOCHS(NAME, TYPE)                                                                                             \
    static void NAME(int64_t n, int64_t width, const TYPE *data, const int32_t *index, const int32_t *start,           \
                     const double *c, const double *o, const double *offset, const double *kappa,                      \
                     const double *inverse, const double *l1, int plain, const Loss *f, int epochs, uint64_t random,   \
                     double *alpha, double *v, int32_t *order)                                                         \
    {                                                                                                                  \
        int64_t active = n;                                                                                            \
        for (int64_t i = 0; i < n; i++) order[i] = (int32_t)i;                                                         \
        int all = epochs - (epochs + 3) / 4;                                                                           \
        for (int epoch = 0; epoch < epochs; epoch++) {                                                                 \
            if (epoch == all) active = n;                                                                              \
            for (int64_t i = active - 1; i > 0; i--) {                                                                 \
                random ^= random << 13, random ^= random >> 7, random ^= random << 17;                                 \
                int64_t j = (int64_t)(random % (uint64_t)(i + 1));                                                     \
                int32_t held = order[i];                                                                               \
                order[i] = order[j], order[j] = held;                                                                  \
            }                                                                                                          \
            for (int64_t at = 0; at < active; at++) {                                                                  \
                int64_t i = order[at], low = start[i] * width, high = start[i + 1] * width;                            \
                if (at + 2 < active) {                                                                                 \
                    int64_t ahead = start[order[at + 2]] * width;                                                      \
                    __builtin_prefetch(data + ahead), __builtin_prefetch(data + ahead + 64 / sizeof(TYPE));            \
                    if (index) __builtin_prefetch(index + ahead), __builtin_prefetch(index + ahead + 16);              \
                }                                                                                                      \
                while (index && high > low && data[high - 1] == 0) high--; /* padding */                               \
                double score = 0.0;                                                                                    \
                for (int64_t k = low; k < high; k++) {                                                                 \
                    int64_t j = index ? index[k] : k - low;                                                            \
                    score += data[k] * (plain ? v[j] : soft(v[j], l1[j]) * inverse[j]);                                \
                }                                                                                                      \
                double q = o[i] * (plain ? score * inverse[0] : score) + offset[i];                                    \
                double next = new_alpha(f, q - kappa[i] * alpha[i], kappa[i], alpha[i]);                               \
                double step = c[i] * o[i] * (next - alpha[i]);                                                         \
                if (next == alpha[i] || !isfinite(step)) {                                                             \
                    if (epoch > 0 && epoch < all) order[at] = order[--active], order[active] = (int32_t)i, at--;       \
                    continue;                                                                                          \
                }                                                                                                      \
                alpha[i] = next;                                                                                       \
                for (int64_t k = low; k < high; k++) v[index ? index[k] : k - low] += step * data[k];                  \
            }                                                                                                          \
        }                                                                                                              \
    }

EPOCHS(epochs_f64, double)
EPOCHS(epochs_f32, float)

/* Arguments: alpha, v, c, o, offset, kappa, inverse, l1, plain, loss (9 numbers, logistic if the first is NaN),
   epochs, seed, data, index, start; dense data have an empty index and start = 0..n, width d. Results: alpha, v. */
XLA_FFI_Error *jaxbounds_sdca(XLA_FFI_CallFrame *frame)
{
    if (asked_for_version(frame)) return NULL;
    XLA_FFI_Buffer **in = (XLA_FFI_Buffer **)frame->args.args, **out = (XLA_FFI_Buffer **)frame->rets.rets;
    int64_t n = in[0]->dims[0], d = in[1]->dims[0], width = in[12]->dims[1];
    const double *loss = in[9]->data;
    Loss f = {loss, loss + 2, loss + 5, isnan(loss[0])};
    double *alpha = memcpy(out[0]->data, in[0]->data, n * sizeof(double));
    double *v = memcpy(out[1]->data, in[1]->data, d * sizeof(double));
    int32_t *order = malloc((n ? n : 1) * sizeof *order);
    if (!order) return no_memory(frame, "no memory for the order of the rows");
    const int32_t *index = in[13]->dims[0] ? in[13]->data : NULL, *start = in[14]->data;
    int plain = *(int32_t *)in[8]->data, epochs = *(int32_t *)in[10]->data;
    uint64_t seed = 88172645463325252ull ^ ((uint64_t)*(int32_t *)in[11]->data << 20);
#define RUN(NAME) NAME(n, width, in[12]->data, index, start, in[2]->data, in[3]->data, in[4]->data, in[5]->data,       \
                       in[6]->data, in[7]->data, plain, &f, epochs, seed, alpha, v, order)
    if (in[12]->dtype == XLA_FFI_DataType_F32) RUN(epochs_f32); else RUN(epochs_f64);
    free(order);
    return NULL;
}
