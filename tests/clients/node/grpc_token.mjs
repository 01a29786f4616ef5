// Options of gRPC's calls for a2a-node/script.mjs and a2a-node-03/script.mjs: the bearer token of ASP_TOKEN with each call.
// Call credentials are sent over TLS only. `grpc` is `@grpc/grpc-js`, which only the programs find.
export const callOptions = (grpc) => ({
  interceptors: [
    (options, nextCall) =>
      new grpc.InterceptingCall(nextCall(options), {
        start: (metadata, listener, next) => {
          metadata.set('authorization', `Bearer ${process.env.ASP_TOKEN}`);
          next(metadata, listener);
        },
      }),
  ],
});
