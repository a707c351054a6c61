"""The lab engine: answers, logs, drains and dies as a real SGLang does, without a GPU.

Held to recordings of SGLang 0.5.23 on a CPU (facts/engines) and to what the sources of 0.5.19
say (facts/serving.md). Everything below is read from the environment.

Speed (seconds, unless said):

    ROLLPIN_LAB_LOAD_SECONDS       0.8    from start to bind, warm caches
    ROLLPIN_LAB_COLD_SECONDS       2.0    more when caches are absent: half for the JIT files,
                                          half for the autotune results
    ROLLPIN_LAB_WARMUP_SECONDS     0.2    bound, and still answering 503
    ROLLPIN_LAB_HEALTH_SECONDS     1.0    the poll of /health; a success takes at least one
    ROLLPIN_LAB_DRAIN_SECONDS      0.3    the poll of the drain after SIGTERM (real: 5)
    ROLLPIN_LAB_CRASH_SECONDS      1.0    dead child to exit, port open, no answers (real: 5)
    ROLLPIN_LAB_HUNG_STOP_SECONDS  4.0    SIGTERM to exit once known unhealthy (real: 84)
    ROLLPIN_LAB_TOKEN_SECONDS      0.002  one decoding step

Looks:

    ROLLPIN_LAB_SGLANG_VERSION     0.5.19; /ready, launch_command and a checking /ping need 0.5.23
    ROLLPIN_LAB_FLASHINFER_VERSION 0.6.18 (0.7.4 from SGLang 0.5.23 on)

Faults, a comma list in ROLLPIN_LAB_FAULT:

    crash-load     a rank raises while loading; the engine kills itself
    crash-after:N  N seconds after ready the scheduler is killed
    hang           the scheduler stops answering when ready (hang-after:N: N seconds later):
                   static routes stay 200, /health turns 503 after its timeout
    freeze         when ready (freeze-after:N: N seconds later) the port accepts and nothing answers
    lie            /health is 200 and every token is garbage (lie:garbage), or every
                   generation is HTTP 500 (lie:500)
    never-ready    the warm-up never ends: 503 for good
    slow:N         loading takes N seconds more
    ignore-sigterm SIGTERM does nothing, at any time
    no-cache       reads and writes no cache
    wrong-model    /model_info and /server_info name another model path

GPUs: NVIDIA_VISIBLE_DEVICES (docker's `--gpus` sets it) or ROLLPIN_LAB_GPU_<index> (the lab's CDI
file). With neither the engine runs without, unless ROLLPIN_LAB_NEEDS_GPUS=1: then it fails as CUDA
does. A second engine on a GPU whose memory is taken fails with "CUDA out of memory".

SGLang's own variables that count here: SGLANG_CACHE_DIR, FLASHINFER_WORKSPACE_BASE,
TRITON_CACHE_DIR, TORCHINDUCTOR_CACHE_DIR, SGLANG_FLASHINFER_AUTOTUNE_CACHE,
SGLANG_HEALTH_CHECK_TIMEOUT (20), SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION,
SGLANG_CUDA_COREDUMP_BEFORE_CRASH_WAIT_SECS (60), SGL_FORCE_SHUTDOWN.
"""
