"""image.py FATBIN OUTPUT: write assembler text that puts the kernels' image into libhvd."""

import hashlib
import pathlib
import sys

image, output = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
output.write_text(
    f"""/* {hashlib.sha256(image.read_bytes()).hexdigest()}: another image makes another file */
    .section .rodata
    .balign 16
    .hidden hvd_kernel_image
    .globl hvd_kernel_image
hvd_kernel_image:
    .incbin "{image}"
    .balign 16
    .section .note.GNU-stack, "", %progbits
"""
)
