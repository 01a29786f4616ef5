//! The contracts between the parts of the platform, as generated Rust types.
//!
//! Owns nothing but the generated code, the envelope of a tunnel's messages, the revisions of MCP, the service of a primitive,
//! the grace periods of a cancelled call and the bounds of the storage of plugins: the `.proto` files in this crate document the
//! messages. Builds for `wasm32-wasip1`, because the edge filter reads the edge snapshot; the gRPC contracts require the feature
//! `grpc`, the APIs of Envoy and of the control plane the feature `xds`, the gRPC binding of A2A the feature `a2a`, OTLP the
//! feature `otlp`, the KMS plugin API of Kubernetes the feature `kms`.

/// The compiled configuration that the control plane pushes (`snapshot.proto`).
pub mod snapshot {
    #![allow(clippy::all, clippy::too_many_lines, rustdoc::all, unreachable_pub, missing_docs)]
    include!(concat!(env!("OUT_DIR"), "/asp.snapshot.v1.rs"));
}

/// The platform-plugin protocol (`plugin.proto`).
#[cfg(feature = "grpc")]
pub mod plugin {
    #![allow(clippy::all, clippy::too_many_lines, rustdoc::all, unreachable_pub, missing_docs)]
    include!(concat!(env!("OUT_DIR"), "/asp.plugin.v1.rs"));
}

/// The Runtime Supervisor API (`supervisor.proto`).
#[cfg(feature = "grpc")]
pub mod supervisor {
    #![allow(clippy::all, clippy::too_many_lines, rustdoc::all, unreachable_pub, missing_docs)]
    include!(concat!(env!("OUT_DIR"), "/asp.runtime.supervisor.v1.rs"));
}

/// The supported part of Envoy's API (`xds/`), by the names of Envoy's own packages.
#[cfg(feature = "xds")]
pub mod xds {
    #![allow(clippy::all, clippy::too_many_lines, rustdoc::all, unreachable_pub, missing_docs)]
    include!(concat!(env!("OUT_DIR"), "/xds.rs"));
}

/// Requests from gateways to a control plane (`control.proto`).
#[cfg(feature = "xds")]
pub mod control {
    #![allow(clippy::all, clippy::too_many_lines, rustdoc::all, unreachable_pub, missing_docs)]
    include!(concat!(env!("OUT_DIR"), "/asp.control.v1.rs"));
}

/// The standard health check of gRPC (`health.proto`).
#[cfg(feature = "xds")]
pub mod health {
    #![allow(clippy::all, clippy::too_many_lines, rustdoc::all, unreachable_pub, missing_docs)]
    include!(concat!(env!("OUT_DIR"), "/grpc.health.v1.rs"));
}

/// The gRPC binding of A2A (`a2a/`), by the names of its packages: `lf::a2a::v1` is version 1.0, `a2a::v1` version 0.3.
#[cfg(feature = "a2a")]
pub mod a2a {
    #![allow(clippy::all, clippy::too_many_lines, rustdoc::all, unreachable_pub, missing_docs)]
    include!(concat!(env!("OUT_DIR"), "/a2a/a2a.rs"));
}

/// The sender's part of the OpenTelemetry Protocol (`otlp/`).
#[cfg(feature = "otlp")]
pub mod otlp {
    #![allow(clippy::all, clippy::too_many_lines, rustdoc::all, unreachable_pub, missing_docs)]
    include!(concat!(env!("OUT_DIR"), "/asp.otlp.v1.rs"));

    impl ExportTraceServiceRequest {
        /// Returns the body of the request over HTTP.
        pub fn to_bytes(&self) -> Vec<u8> {
            prost::Message::encode_to_vec(self)
        }
    }
}

/// The KMS plugin API v2 of Kubernetes (`kms/v2.proto`).
#[cfg(feature = "kms")]
pub mod kms {
    #![allow(clippy::all, clippy::too_many_lines, rustdoc::all, unreachable_pub, missing_docs)]
    include!(concat!(env!("OUT_DIR"), "/v2.rs"));
}

#[cfg(feature = "grpc")]
mod credential;
#[cfg(feature = "grpc")]
pub mod envelope;
pub mod grace;
#[cfg(feature = "grpc")]
mod init_request;
#[cfg(feature = "kms")]
mod kms_plaintext;
pub mod mcp_revision;
mod service;
#[cfg(feature = "grpc")]
pub mod storage;

/// Both gRPC contracts as an encoded `google.protobuf.FileDescriptorSet`, for checks of the wire format.
#[cfg(feature = "grpc")]
pub const GRPC_DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/grpc.fds"));

/// The messages of A2A in both versions as an encoded `google.protobuf.FileDescriptorSet`.
#[cfg(feature = "a2a")]
pub const A2A_DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/a2a/a2a.fds"));
