/* A program of version 1 of the C interface: its structs have the sizes of that version. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hvd_1.h"

static void need(int ok, const char* what) {
  if (ok) return;
  fprintf(stderr, "%s: %s\n", what, hvd_last_error());
  exit(1);
}

int main(void) {
  const hvd_init_options options = {sizeof options, NULL, 0};
  need(hvd_init(&options) == HVD_OK, "hvd_init");
  hvd_world world;
  need(hvd_get_world(&world) == HVD_OK && world.size == 2, "hvd_get_world");

  const int64_t shape[] = {3}, rows[] = {world.rank + 1};
  const float ones[] = {1, 1, 1};
  float sum[3];
  const int32_t mine[] = {world.rank, world.rank};
  hvd_request requests[2];
  memset(requests, 0, sizeof requests);
  requests[0] = (hvd_request){sizeof(hvd_request),
                              HVD_ALLREDUCE,
                              HVD_F32,
                              HVD_SUM,
                              "sum",
                              shape,
                              1,
                              0,
                              HVD_GLOBAL_SET,
                              HVD_HOST_DEVICE,
                              1,
                              2,
                              ones,
                              sum,
                              NULL,
                              0,
                              NULL,
                              0};
  requests[1] = (hvd_request){sizeof(hvd_request),
                              HVD_ALLGATHER,
                              HVD_I32,
                              0,
                              "rows",
                              rows,
                              1,
                              0,
                              HVD_GLOBAL_SET,
                              HVD_HOST_DEVICE,
                              0,
                              0,
                              mine,
                              NULL,
                              NULL,
                              0,
                              NULL,
                              0};
  hvd_handle handles[2];
  need(hvd_submit_many(requests, 2, 0, handles) == HVD_OK, "hvd_submit_many");
  need(hvd_wait_many(handles, 2, 30) == HVD_OK, "hvd_wait_many");
  need(sum[0] == 4 && sum[2] == 4, "the sum");
  int32_t* all;
  int64_t found[64];
  int32_t ndim;
  need(hvd_take(handles[1], (void**)&all, found, &ndim) == HVD_OK && ndim == 1 && found[0] == 3, "hvd_take");
  need(all[0] == 0 && all[1] == 1 && all[2] == 1, "the rows");
  hvd_free(all);
  need(hvd_release_many(handles, 2) == HVD_OK, "hvd_release_many");

  requests[0].struct_size = offsetof(hvd_request, out_bytes); /* as before out_bytes existed */
  need(hvd_run(&requests[0]) == HVD_OK && sum[1] == 4, "hvd_run");
  requests[0].dtype = 1000;
  need(hvd_run(&requests[0]) == HVD_USAGE, "a dtype of no version");
  size_t links;
  need(hvd_links(NULL, 0, &links) == HVD_OK && links == 0, "hvd_links");
  need(hvd_shutdown() == HVD_OK, "hvd_shutdown");
  puts("old program: ok");
  return 0;
}
