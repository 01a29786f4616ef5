//! Compiles the contracts with protox, so that no `protoc` binary is needed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for file in [
        "snapshot.proto",
        "policy.proto",
        "proxy.proto",
        "plugin.proto",
        "supervisor.proto",
        "control.proto",
        "health.proto",
        "xds",
        "a2a",
        "otlp",
        "kms",
    ] {
        println!("cargo:rerun-if-changed={file}");
    }
    // Maps are ordered, so that a snapshot encodes to the same bytes every time (digests depend on it).
    let mut config = prost_build::Config::new();
    config.btree_map(["."]);
    config.compile_fds(protox::compile(["snapshot.proto"], ["."])?)?;
    #[cfg(feature = "otlp")]
    prost_build::Config::new().compile_fds(protox::compile(["otlp/trace.proto"], ["."])?)?;
    grpc()?;
    a2a()?;
    kms()?;
    xds()
}

/// Compiles messages, clients and servers of the two gRPC contracts.
#[cfg(feature = "grpc")]
fn grpc() -> Result<(), Box<dyn std::error::Error>> {
    use prost::Message;
    let descriptors = protox::compile(["plugin.proto", "supervisor.proto"], ["."])?;
    let out = std::path::PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("grpc.fds"), descriptors.encode_to_vec())?;
    let mut config = prost_build::Config::new();
    config.enable_type_names().type_name_domain(["."], "type.googleapis.com");
    // They hold secrets: `src/credential.rs` and `src/init_request.rs` limit what is printed.
    config.skip_debug([".asp.runtime.supervisor.v1.Credential", ".asp.plugin.v1.InitRequest"]);
    tonic_prost_build::configure().btree_map(".").compile_fds_with_config(descriptors, config)?;
    Ok(())
}

#[cfg(not(feature = "grpc"))]
#[expect(clippy::unnecessary_wraps, reason = "the other build of this function can fail")]
fn grpc() -> Result<(), Box<dyn std::error::Error>> {
    Ok(())
}

/// Compiles the supported part of Envoy's API, as one module tree of its packages.
#[cfg(feature = "xds")]
fn xds() -> Result<(), Box<dyn std::error::Error>> {
    let services = ["xds/discovery.proto", "xds/ecds.proto", "xds/eds.proto"];
    let resources = ["xds/endpoint.proto", "xds/wasm_filter.proto"];
    let descriptors = protox::compile(services.into_iter().chain(resources), ["."])?;
    tonic_prost_build::configure().include_file("xds.rs").compile_fds(descriptors)?;
    let control = protox::compile(["control.proto", "health.proto"], ["."])?;
    tonic_prost_build::configure().compile_fds(control)?;
    Ok(())
}

#[cfg(not(feature = "xds"))]
#[expect(clippy::unnecessary_wraps, reason = "the other build of this function can fail")]
fn xds() -> Result<(), Box<dyn std::error::Error>> {
    Ok(())
}

/// Compiles A2A of both versions, as one module tree of its packages.
#[cfg(feature = "a2a")]
fn a2a() -> Result<(), Box<dyn std::error::Error>> {
    use prost::Message;
    let descriptors = protox::compile(["a2a/v1.proto", "a2a/v0_3.proto", "a2a/rpc.proto"], ["."])?;
    // A directory of its own: Envoy's API has a package of the same name with fewer fields.
    let out = std::path::PathBuf::from(std::env::var("OUT_DIR")?).join("a2a");
    std::fs::create_dir_all(&out)?;
    std::fs::write(out.join("a2a.fds"), descriptors.encode_to_vec())?;
    let config = tonic_prost_build::configure().btree_map(".").out_dir(out);
    config.include_file("a2a.rs").compile_fds(descriptors)?;
    Ok(())
}

#[cfg(not(feature = "a2a"))]
#[expect(clippy::unnecessary_wraps, reason = "the other build of this function can fail")]
fn a2a() -> Result<(), Box<dyn std::error::Error>> {
    Ok(())
}

/// Compiles the KMS plugin API of Kubernetes.
#[cfg(feature = "kms")]
fn kms() -> Result<(), Box<dyn std::error::Error>> {
    let mut config = prost_build::Config::new();
    // They hold data keys: `src/kms_plaintext.rs` limits what is printed.
    config.skip_debug([".v2.EncryptRequest", ".v2.DecryptResponse"]);
    let descriptors = protox::compile(["kms/v2.proto"], ["."])?;
    tonic_prost_build::configure().btree_map(".").compile_fds_with_config(descriptors, config)?;
    Ok(())
}

#[cfg(not(feature = "kms"))]
#[expect(clippy::unnecessary_wraps, reason = "the other build of this function can fail")]
fn kms() -> Result<(), Box<dyn std::error::Error>> {
    Ok(())
}
