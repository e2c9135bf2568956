# The image: the package of `npm run package`, on Node and glibc. How to run it: docs/self-hosting.md.
# Tags are pinned. For production, pin their digests, too.

FROM node:24.21.0-bookworm-slim AS build
WORKDIR /build
COPY package.json package-lock.json ./
COPY packages packages
RUN npm ci --ignore-scripts
COPY LICENSE tsconfig.json wrangler.toml ./
COPY cli cli
COPY scripts scripts
COPY src src
# workerd's binary is in a package of its own for each platform: the right one comes with it, and needs no script.
RUN node scripts/package.ts && npm install --ignore-scripts --no-package-lock --prefix dist/package
RUN mkdir /data /backup

FROM gcr.io/distroless/cc-debian12:nonroot
LABEL org.opencontainers.image.title="responses-edge" \
      org.opencontainers.image.description="The OpenAI Responses API in front of vLLM" \
      org.opencontainers.image.licenses="Apache-2.0"
# The very Node that the tests run on.
COPY --from=build /usr/local/bin/node /usr/local/bin/node
COPY --from=build /build/dist/package /app
COPY --from=build --chown=65532:65532 /data /data
# Where `backup` may write: a volume that is mounted there belongs to the same user.
COPY --from=build --chown=65532:65532 /backup /backup
ENV HOST=0.0.0.0 \
    PORT=8787 \
    STATE_DIRECTORY=/data \
    LOG_FORMAT=json
# By number: Kubernetes cannot tell whether a name is root's.
USER 65532:65532
EXPOSE 8787
VOLUME /data
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=6s --start-period=60s --retries=3 \
  CMD ["/usr/local/bin/node", "/app/responses-edge.js", "health"]
ENTRYPOINT ["/usr/local/bin/node", "/app/responses-edge.js"]
CMD ["serve"]
