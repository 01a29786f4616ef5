//! Compiles the contracts with protox, so that no `protoc` binary is needed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = ["snapshot.proto"];
    for file in files {
        println!("cargo:rerun-if-changed={file}");
    }
    let descriptors = protox::compile(files, ["."])?;
    prost_build::Config::new().compile_fds(descriptors)?;
    Ok(())
}
