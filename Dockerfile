# An image of `nmt serve`. The tests of this project do not build it.
#
#   docker build -t nmt-serve .
#   docker run -p 8000:8000 -v "$PWD/run:/models" nmt-serve /models/average.safetensors --token-file /models/token
FROM python:3.12-slim
COPY pyproject.toml constraints.txt README.md LICENSE /src/
COPY nmt /src/nmt
RUN pip install --no-cache-dir '/src[clean,ctranslate2,documents,memory,serve]' -c /src/constraints.txt && useradd --create-home nmt
USER nmt
EXPOSE 8000
ENTRYPOINT ["nmt", "serve", "--host=0.0.0.0"]
