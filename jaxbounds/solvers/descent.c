/* Coordinate descent over the columns of a working set, as an XLA FFI handler (see compiled_columns.py).

   min_w  sum_i c_i/2 (y_i - x_i.w - b)^2 + sum_j lam_j/2 w_j^2 + l1_j |w_j|,   r_i = c_i (y_i - x_i.w - b).
   The set holds the columns in use and as many of those that are nearest to it, by how far v_j = x_j.r is from l1_j in
   the norm of the column. A round is a pass over all of it and SPAN over what is in use, then Anderson's extrapolation
   from the w of these passes, kept where the objective is lower (Bertrand and Massias 2021). */
#include "handler.h"

#define SPAN 5
#define LEAST 100 /* columns of a working set */

/* The entries of the columns, or the last of them: cut into chunks of this width. */
typedef struct {
    int64_t width;
    const void *data;
    const int32_t *index, *start;
} Part;

typedef struct {
    int64_t n, d;
    Part parts[2];
    int count;
    const double *c, *h, *lam, *l1; /* h_j = sum_i c_i x_ij^2 */
    double all_c;                   /* the weight of all rows, NaN where they differ */
    int intercept;
} Data;

/* The m-th largest of x, which is reordered (Hoare's quickselect). */
static double largest(double *x, int64_t size, int64_t m)
{
    int64_t low = 0, high = size - 1;
    while (low < high) {
        double pivot = x[low + (high - low) / 2];
        int64_t i = low, j = high;
        while (i <= j) {
            while (x[i] > pivot) i++;
            while (x[j] < pivot) j--;
            if (i <= j) {
                double held = x[i];
                x[i++] = x[j], x[j--] = held;
            }
        }
        if (m - 1 <= j) high = j; else if (m - 1 >= i) low = i; else break;
    }
    return x[m - 1];
}

/* The columns of the working set, in order; returns how many. */
static int64_t chosen(const Data *s, const double *w, const double *v, double *score, double *scratch, int32_t *columns)
{
    int64_t used = 0, count = 0;
    for (int64_t j = 0; j < s->d; j++) {
        used += w[j] != 0.0;
        score[j] = w[j] != 0.0 ? INFINITY : s->h[j] > 0.0 ? (fabs(v[j]) - s->l1[j]) / sqrt(s->h[j]) : -INFINITY;
        if (isnan(score[j])) score[j] = -INFINITY;
    }
    int64_t most = 2 * used > LEAST ? 2 * used : LEAST;
    memcpy(scratch, score, s->d * sizeof *score);
    double least = most < s->d ? largest(scratch, s->d, most) : -INFINITY;
    for (int64_t j = 0; j < s->d; j++)
        if (score[j] >= least && score[j] > -INFINITY) columns[count++] = (int32_t)j;
    return count;
}

static double objective(const Data *s, const int32_t *columns, int64_t m, const double *w, const double *r)
{
    double rows = 0.0, values = 0.0;
    for (int64_t i = 0; i < s->n; i++) rows += s->c[i] > 0.0 ? r[i] * r[i] / s->c[i] : 0.0;
    for (int64_t a = 0; a < m; a++) {
        int64_t j = columns[a];
        values += s->lam[j] / 2 * w[j] * w[j] + s->l1[j] * fabs(w[j]);
    }
    return rows / 2 + values;
}

/* Weights z, summing to 1, that make |sum_k z_k (p_{k+1} - p_k)| least over the SPAN + 1 points; 0 if there are none. */
static int extrapolation(const double *points, int64_t m, double *z)
{
    double gram[SPAN][SPAN + 1], trace = 0.0, sum = 0.0;
    for (int p = 0; p < SPAN; p++)
        for (int q = 0; q <= p; q++) {
            double value = 0.0;
            const double *one = points + p * m, *other = points + q * m;
            for (int64_t a = 0; a < m; a++) value += (one[m + a] - one[a]) * (other[m + a] - other[a]);
            gram[p][q] = gram[q][p] = value;
        }
    for (int p = 0; p < SPAN; p++) trace += gram[p][p];
    for (int p = 0; p < SPAN; p++) gram[p][p] += 1e-12 * trace, gram[p][SPAN] = 1.0;
    for (int p = 0; p < SPAN; p++)
        for (int q = p + 1; q < SPAN; q++) {
            double factor = gram[q][p] / gram[p][p];
            for (int k = p; k <= SPAN; k++) gram[q][k] -= factor * gram[p][k];
        }
    for (int p = SPAN - 1; p >= 0; p--) {
        z[p] = gram[p][SPAN];
        for (int q = p + 1; q < SPAN; q++) z[p] -= gram[p][q] * z[q];
        z[p] /= gram[p][p];
        sum += z[p];
    }
    for (int p = 0; p < SPAN; p++) z[p] /= sum;
    return isfinite(sum) && sum != 0.0;
}

/* The intercept that is best for the present scores: sum_i r_i = 0. */
static void balance(const Data *s, double *r)
{
    if (!s->intercept) return;
    double sum = 0.0, weight = 0.0;
    for (int64_t i = 0; i < s->n; i++) sum += r[i], weight += s->c[i];
    for (int64_t i = 0; i < s->n && weight > 0.0; i++) r[i] -= s->c[i] * (sum / weight);
}

#define DESCENT(NAME, TYPE)                                                                                            \
    static void NAME##_move(const Data *s, int64_t j, double step, double *r)                                          \
    {                                                                                                                  \
        double all = step * s->all_c;                                                                                  \
        for (const Part *p = s->parts; p < s->parts + s->count; p++) {                                                 \
            const TYPE *data = p->data;                                                                                \
            int64_t low = p->start[j] * p->width, high = p->start[j + 1] * p->width;                                   \
            if (isnan(all))                                                                                            \
                for (int64_t k = low; k < high; k++) r[p->index[k]] -= step * s->c[p->index[k]] * data[k];             \
            else                                                                                                       \
                for (int64_t k = low; k < high; k++) r[p->index[k]] -= all * data[k];                                  \
        }                                                                                                              \
    }                                                                                                                  \
    static void NAME##_pass(const Data *s, const int32_t *columns, int64_t m, int in_use, double *w, double *r)        \
    {                                                                                                                  \
        for (int64_t a = 0; a < m; a++) {                                                                              \
            int64_t j = columns[a];                                                                                    \
            if (in_use && w[j] == 0.0) continue;                                                                       \
            double v = 0.0;                                                                                            \
            for (const Part *p = s->parts; p < s->parts + s->count; p++) {                                             \
                const TYPE *data = p->data;                                                                            \
                for (int64_t k = p->start[j] * p->width; k < p->start[j + 1] * p->width; k++)                          \
                    v += data[k] * r[p->index[k]];                                                                     \
            }                                                                                                          \
            double step = soft(s->h[j] * w[j] + v, s->l1[j]) / (s->h[j] + s->lam[j]) - w[j];                           \
            if (step == 0.0 || !isfinite(step)) continue;                                                              \
            w[j] += step;                                                                                              \
            NAME##_move(s, j, step, r);                                                                                \
        }                                                                                                              \
        balance(s, r);                                                                                                 \
    }                                                                                                                  \
    static void NAME(const Data *s, const int32_t *columns, int64_t m, int rounds, double *points,                     \
                     double *kept, double *w, double *r)                                                               \
    {                                                                                                                  \
        double z[SPAN];                                                                                                \
        while (rounds-- > 0) {                                                                                         \
            for (int k = 0; k <= SPAN; k++) {                                                                          \
                NAME##_pass(s, columns, m, k > 0, w, r);                                                               \
                for (int64_t a = 0; a < m; a++) points[k * m + a] = w[columns[a]];                                     \
            }                                                                                                          \
            if (!extrapolation(points, m, z)) continue;                                                                \
            double before = objective(s, columns, m, w, r);                                                            \
            memcpy(kept, r, s->n * sizeof *r);                                                                         \
            for (int64_t a = 0; a < m; a++) {                                                                          \
                double end = 0.0;                                                                                      \
                for (int k = 0; k < SPAN; k++) end += z[k] * points[(k + 1) * m + a];                                  \
                if (end != w[columns[a]]) NAME##_move(s, columns[a], end - w[columns[a]], r);                          \
                w[columns[a]] = end;                                                                                   \
            }                                                                                                          \
            balance(s, r);                                                                                             \
            if (objective(s, columns, m, w, r) < before) continue;                                                     \
            memcpy(r, kept, s->n * sizeof *r);                                                                         \
            for (int64_t a = 0; a < m; a++) w[columns[a]] = points[SPAN * m + a];                                      \
        }                                                                                                              \
    }

DESCENT(descent_f64, double)
DESCENT(descent_f32, float)

/* Arguments: w, r, v, c, h, lam, l1, rounds, intercept, how many parts,
   data, index, start of both. Results: w, r. */
XLA_FFI_Error *jaxbounds_descent(XLA_FFI_CallFrame *frame)
{
    if (asked_for_version(frame)) return NULL;
    XLA_FFI_Buffer **in = (XLA_FFI_Buffer **)frame->args.args, **out = (XLA_FFI_Buffer **)frame->rets.rets;
    Data s = {in[1]->dims[0], in[0]->dims[0],
              {{in[10]->dims[1], in[10]->data, in[11]->data, in[12]->data},
               {in[13]->dims[1], in[13]->data, in[14]->data, in[15]->data}}, *(int32_t *)in[9]->data,
              in[3]->data, in[4]->data, in[5]->data, in[6]->data, NAN, *(int32_t *)in[8]->data};
    int64_t same = 1;
    while (same < s.n && s.c[same] == s.c[0]) same++;
    if (s.n && same == s.n) s.all_c = s.c[0];
    double *w = memcpy(out[0]->data, in[0]->data, s.d * sizeof *w);
    double *r = memcpy(out[1]->data, in[1]->data, s.n * sizeof *r);
    double *scores = malloc((2 * s.d + 1) * sizeof *scores), *points = NULL;
    int32_t *columns = malloc((s.d + 1) * sizeof *columns);
    int64_t m = 0;
    if (scores && columns) {
        m = chosen(&s, w, in[2]->data, scores, scores + s.d, columns);
        points = malloc(((SPAN + 1) * m + s.n + 1) * sizeof *points);
    }
    free(scores);
    if (points) {
        double *kept = points + (SPAN + 1) * m;
        int rounds = *(int32_t *)in[7]->data;
        if (in[10]->dtype == XLA_FFI_DataType_F32)
            descent_f32(&s, columns, m, rounds, points, kept, w, r);
        else
            descent_f64(&s, columns, m, rounds, points, kept, w, r);
    }
    free(columns), free(points);
    return points ? NULL : no_memory(frame, "no memory for a working set");
}
