"""GLM-5.3 as the service glm53: the report's recipe, autotune with persistent caches.

pyinfra inventory/lab.py deploys/glm53.py
"""

from roles.inference_server import inference_server

inference_server(
    profile="profiles/pro6000/glm53_nvfp4_pro6000_sglang_tp2pp4_latest_autotune.env",
)
