# Remora as an image of one static binary: docker build -t remora .
#
# The build needs the base image and the Go modules, nothing else, and two builds of one source give the same binary:
# no paths, no time and no build id are in it. For one and the same image, too: --build-arg SOURCE_DATE_EPOCH=0 and
# --output type=image,rewrite-timestamp=true. GO_IMAGE takes the base image from a registry of yours, or by digest;
# GOPROXY the modules from a proxy of yours. --build-arg VERSION=1.2.3 is what --version, service.version and the image's
# labels say; REVISION, SOURCE (a URL) and LICENSES (an SPDX expression) are for the labels alone, of where you publish it.
ARG GO_IMAGE=docker.io/library/golang:1.26.8-alpine

FROM --platform=$BUILDPLATFORM ${GO_IMAGE} AS build
ARG TARGETOS
ARG TARGETARCH
ARG GOPROXY
WORKDIR /src
# Modules change less often than code, and so stay in the cache of layers.
COPY go.mod go.sum ./
RUN go mod download
COPY . .
# grpcnotrace: no page of gRPC's own traces, which nobody would serve. It is made by a template, and where one is executed
# the linker keeps every method of every type: a third of the binary.
ARG VERSION
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH GOFLAGS=-mod=readonly \
    go build -tags grpcnotrace -trimpath -buildvcs=false -ldflags "-s -w -buildid= -X main.release=$VERSION" -o /out/remora ./cmd/remora
# What is there besides the binary: public certificates, time zones by name, and the folder for state. Any user of
# group 0 may write to it, for platforms that choose the user id.
RUN mkdir -p /out/data /out/etc/ssl/certs \
    && cp /etc/ssl/certs/ca-certificates.crt /out/etc/ssl/certs/ \
    && cp /usr/local/go/lib/time/zoneinfo.zip /out/etc/ \
    && chmod 0770 /out/data

FROM scratch
ARG VERSION
ARG REVISION
ARG SOURCE
ARG LICENSES
LABEL org.opencontainers.image.title="remora" \
      org.opencontainers.image.description="A reverse proxy that gives OpenAI-compatible APIs a memory" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION" \
      org.opencontainers.image.source="$SOURCE" \
      org.opencontainers.image.licenses="$LICENSES"
COPY --from=build /out/etc /etc
COPY --from=build --chown=65532:0 /out/data /data
COPY --from=build /out/remora /remora
# A number, so that runAsNonRoot can be checked without a passwd file.
USER 65532:0
# remora.db and the spool go here by default: the only place that is written to.
WORKDIR /data
VOLUME /data
# A variable counts more than a file: server.listen of a configuration that is mounted has no effect here. The default of 127.0.0.1
# would be of no use in a container.
ENV REMORA_SERVER_LISTEN=:8080 ZONEINFO=/etc/zoneinfo.zip
EXPOSE 8080 9090
# SIGTERM lets answers under way finish, for server.shutdown_grace.
STOPSIGNAL SIGTERM
ENTRYPOINT ["/remora"]
