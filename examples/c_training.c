/* A training loop in C: a network of 12 layers within 60 % of the memory that it takes, with an
 * evaluation behind every second step. The loss has the same bits as without a budget. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "delta/engine/c_interface.h"

enum { layers = 12, batch = 128, width = 32, steps = 4 };
static const uint64_t activation = sizeof(float) * batch * width;
static const uint64_t matrix = sizeof(float) * width * width;

static delta_manager* m;

static void check(delta_status s) {
  if (s == DELTA_OK) return;
  fprintf(stderr, "%s\n", delta_last_error(m)->what);
  exit(1);
}

/* --- kernels: now, and again when an output has to be made again ----------------------------- */

/* y = tanh(x w) */
static int forward(void* state, const delta_call* c) {
  const float *x = delta_call_in(c, 0), *w = delta_call_in(c, 1);
  float* y = delta_call_out(c, 0);
  (void)state;
  for (int i = 0; i < batch; ++i)
    for (int j = 0; j < width; ++j) {
      float sum = 0;
      for (int k = 0; k < width; ++k) sum += x[i * width + k] * w[k * width + j];
      y[i * width + j] = tanhf(sum);
    }
  return 0;
}
/* From y's gradient those of x and w. */
static int backward(void* state, const delta_call* c) {
  const float *x = delta_call_in(c, 0), *w = delta_call_in(c, 1);
  const float *y = delta_call_in(c, 2), *dy = delta_call_in(c, 3);
  float *dx = delta_call_out(c, 0), *dw = delta_call_out(c, 1);
  (void)state;
  memset(dx, 0, activation);
  memset(dw, 0, matrix);
  for (int i = 0; i < batch; ++i)
    for (int j = 0; j < width; ++j) {
      const float slope = dy[i * width + j] * (1 - y[i * width + j] * y[i * width + j]);
      for (int k = 0; k < width; ++k) {
        dx[i * width + k] += slope * w[k * width + j];
        dw[k * width + j] += slope * x[i * width + k];
      }
    }
  return 0;
}
/* w -= dw / 100, in place */
static int update(void* state, const delta_call* c) {
  const float* dw = delta_call_in(c, 0);
  float* w = delta_call_update(c, 0);
  (void)state;
  for (int k = 0; k < width * width; ++k) w[k] -= dw[k] / 100;
  return 0;
}

/* Runs an operator of one or two outputs of these sizes. */
static void run(const char* name, int (*f)(void*, const delta_call*), const delta_tensor* in,
                size_t inputs, const uint64_t* sizes, size_t outputs, delta_tensor* made) {
  const delta_kernel kernel = {f, NULL, NULL};
  delta_operation op = {0};
  op.name = name;
  op.inputs = in, op.input_count = inputs;
  op.outputs = sizes, op.output_count = outputs;
  check(delta_run(m, &op, kernel, made));
}

/* --- the program: what it no longer needs it drops ------------------------------------------- */

static delta_tensor filled(uint64_t size, const char* label) {
  delta_tensor t = DELTA_NO_TENSOR;
  delta_view v;
  check(delta_variable(m, size, label, &t));
  check(delta_acquire(m, t, 1, &v));
  for (uint32_t k = 0; k < size / sizeof(float); ++k)
    ((float*)v.data)[k] = (float)((k * k + t + 1) * 2654435761u >> 8) / (1 << 24) - 0.5f;
  delta_release(m, v.slot);
  return t;
}
static float mean_of_squares(delta_tensor t) {
  float sum = 0;
  delta_view v;
  check(delta_acquire(m, t, 0, &v));
  for (uint64_t k = 0; k < v.size / sizeof(float); ++k) {
    const float x = ((const float*)v.data)[k];
    sum += x * x;
  }
  sum /= (float)(v.size / sizeof(float));
  delta_release(m, v.slot);
  return sum;
}

static void train_step(delta_tensor input, const delta_tensor* weights) {
  delta_tensor x[layers + 1];
  const uint64_t sizes[2] = {activation, matrix};
  x[0] = input;
  for (int l = 0; l < layers; ++l) {
    const delta_tensor in[2] = {x[l], weights[l]};
    run("forward", forward, in, 2, sizes, 1, &x[l + 1]);
  }
  delta_tensor dy = x[layers]; /* the gradient of half the sum of squares */
  check(delta_share(m, dy));
  for (int l = layers; l-- > 0;) {
    const delta_tensor in[4] = {x[l], weights[l], x[l + 1], dy};
    delta_tensor made[2];
    run("backward", backward, in, 4, sizes, 2, made);
    check(delta_drop(m, dy));
    check(delta_drop(m, x[l + 1]));
    dy = made[0];

    const delta_kernel kernel = {update, NULL, NULL};
    delta_operation op = {0};
    op.name = "update";
    op.inputs = &made[1], op.input_count = 1;
    op.updates = &weights[l], op.update_count = 1;
    check(delta_run(m, &op, kernel, NULL));
    check(delta_drop(m, made[1]));
  }
  check(delta_drop(m, dy));
  check(delta_end_of_step(m));
}
/* A step of another kind: it has an end of its own. */
static float evaluate(delta_tensor input, const delta_tensor* weights) {
  delta_tensor x = input;
  for (int l = 0; l < layers; ++l) {
    const delta_tensor in[2] = {x, weights[l]};
    delta_tensor y = DELTA_NO_TENSOR;
    run("forward", forward, in, 2, &activation, 1, &y);
    if (x != input) check(delta_drop(m, x));
    x = y;
  }
  const float loss = mean_of_squares(x);
  check(delta_drop(m, x));
  check(delta_end_of_step(m));
  return loss;
}

static float train(const char* policy, uint64_t budget, delta_counts* counts) {
  delta_options o = {0};
  delta_error error;
  o.policy = policy, o.budget = budget;
  m = delta_create(&o, &error);
  if (m == NULL) fprintf(stderr, "%s\n", error.what), exit(1);
  const delta_tensor input = filled(activation, "input");
  delta_tensor weights[layers];
  for (int l = 0; l < layers; ++l) weights[l] = filled(matrix, "weights");
  float loss = 0;
  for (int step = 1; step <= steps; ++step) {
    train_step(input, weights);
    if (step % 2 == 0) loss = evaluate(input, weights);
  }
  delta_count(m, counts);
  delta_destroy(m);
  return loss;
}

int main(void) {
  delta_counts whole, tight;
  const float expected = train("unmanaged", 64 << 20, &whole);
  const uint64_t budget = whole.peak * 6 / 10;
  const float loss = train("adaptive", budget, &tight);
  printf("loss %.6f in %llu of %llu bytes: %s bits\n", loss, (unsigned long long)tight.peak,
         (unsigned long long)whole.peak, loss == expected ? "the same" : "OTHER");
  return loss == expected && tight.peak <= budget && tight.recomputes > 0 ? 0 : 1;
}
