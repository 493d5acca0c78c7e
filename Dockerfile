# fedrepro with its locked environment, on the CPU or, with the NVIDIA container runtime, on a GPU:
#   docker build -t fedrepro .
#   docker run --rm -v "$PWD/out:/out" fedrepro train --method fedavg --dataset digits --out /out/first
FROM python:3.11-slim

RUN apt-get update && apt-get install --yes --no-install-recommends git make && rm -rf /var/lib/apt/lists/*

WORKDIR /fedrepro

# The environment is a layer of its own: a change of the sources does not install it again.
COPY requirements.lock ./
RUN python -m venv .venv && .venv/bin/pip install --no-cache-dir --require-hashes -r requirements.lock

COPY . .
RUN .venv/bin/pip install --no-deps --no-build-isolation --editable . && touch .venv/.stamp

ENV PATH=/fedrepro/.venv/bin:$PATH
ENTRYPOINT ["fedrepro"]
CMD ["--help"]
