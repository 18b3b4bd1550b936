"""Models that want to do harm: linear ones, and kernel ones."""

from __future__ import annotations

import pickle

from hostile.cases import Case, Payload, array_in, edit, link, npy, object_npy, pipe, put, set_in

MODELS: dict[str, Case] = {
    "coef of objects": lambda root: put("coef.npy", object_npy())(root),
    "coef of 2^60": put("coef.npy", npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1, 1152921504606846976)}")),
    "coef of 10 GB, short": put("coef.npy", npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1, 1342177280)}")),
    "coef negative": put("coef.npy", npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1, -40)}")),
    "coef header code": put("coef.npy", npy("__import__('os').mkdir('/tmp/bigsvm-payload')")),
    "coef of text": put("coef.npy", npy("{'descr': '<U9', 'fortran_order': False, 'shape': (1, 40)}", bytes(1440))),
    "coef empty": put("coef.npy", b""),
    "coef a pipe": pipe("coef.npy"),
    "coef /dev/zero": link("coef.npy", "/dev/zero"),
    "coef a pickle": lambda root: put("coef.npy", pickle.dumps(Payload()))(root),
    "model.json a pipe": pipe("model.json"),
    "model.json /dev/zero": link("model.json", "/dev/zero"),
    "model.json not JSON": put("model.json", b"{"),
    "model.json of 100000 levels": put("model.json", b"[" * 100_000),
    "format of another": set_in("model.json", "format", "sklearn"),
    "version 99": set_in("model.json", "format_version", 99),
    "version true": set_in("model.json", "format_version", True),
    "features 2^62": set_in("model.json", "n_features", 1 << 62),
    "features negative": set_in("model.json", "n_features", -1),
    "classes a number": set_in("model.json", "classes", 7),
    "classes objects": set_in("model.json", "classes", [{"a": 1}, None]),
    "classes of 10^6": set_in("model.json", "classes", list(range(10**6))),
    "array outside": edit("model.json", lambda d: d["digests"].update({"../../etc/passwd": "0" * 32})),
    "no digests": edit("model.json", lambda d: d.pop("digests") and None),
}


KERNEL_MODELS: dict[str, Case] = {
    "support of objects": lambda root: put("support_data.npy", object_npy())(root),
    "support of 2^60": put(
        "support_data.npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1152921504606846976,)}")
    ),
    "support of 10 GB, short": put(
        "support_data.npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2684354560,)}")
    ),
    "support a pickle": lambda root: put("support_data.npy", pickle.dumps(Payload()))(root),
    "support a pipe": pipe("support_data.npy"),
    "support /dev/zero": link("support_indices.npy", "/dev/zero"),
    "pointers header code": put("support_indptr.npy", npy("__import__('os').mkdir('/tmp/bigsvm-payload')")),
    "pointers run backwards": array_in("support_indptr.npy", lambda a: a[::-1]),
    "pointers beyond the values": array_in("support_indptr.npy", lambda a: a * 1_000_000),
    "indices negative": array_in("support_indices.npy", lambda a: a - 50),
    "indices beyond the features": array_in("support_indices.npy", lambda a: a + 2_000_000_000),
    "rows beyond 2^62": array_in("support_rows.npy", lambda a: a + (1 << 62)),
    "coefficients infinite": array_in("dual_coef.npy", lambda a: a / 0.0),
    "kernel features 2^62": set_in("model.json", "n_features", 1 << 62),
    "kernel of another": set_in("model.json", "problem", "kernel", {"name": "os.system"}),
    "kernel a list": set_in("model.json", "problem", "kernel", [[]]),
    "degree 10^9": set_in("model.json", "problem", "kernel", {"name": "poly", "degree": 10**9}),
    "pairs of 10^6 classes": edit(
        "model.json", lambda d: d.update(classes=list(range(10**6))) or d["problem"].update(multi_class="ovo")
    ),
    "kernel precomputed of 2^62": edit(
        "model.json", lambda d: d.update(n_features=1 << 62) or d["problem"].update(kernel={"name": "precomputed"})
    ),
    "kernel array outside": edit("model.json", lambda d: d["digests"].update({"../../etc/passwd": "0" * 32})),
}
