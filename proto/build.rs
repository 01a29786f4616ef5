//! Compiles the contracts with protox, so that no `protoc` binary is needed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = ["snapshot.proto"];
    for file in files {
        println!("cargo:rerun-if-changed={file}");
    }
    let descriptors = protox::compile(files, ["."])?;
    // Maps are ordered, so that a snapshot encodes to the same bytes every time (digests depend on it).
    prost_build::Config::new().btree_map(["."]).compile_fds(descriptors)?;
    Ok(())
}
