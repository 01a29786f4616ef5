//! `asp compile`: the compiled form of a directory of primitives, as clients and the runtime would get it. Offline.

use asp_command::failure::Failure;
use asp_command::print;
use asp_control::admin::registry::{DEFAULT_REVISION, compiled};
use serde_json::Value;

use super::known::suggest;
use super::specs;
use crate::args::CompileArgs;

/// Compiles and prints; fails if there is a fault or no such server.
pub fn run(args: &CompileArgs) -> Result<(), Failure> {
    let (_, found) = specs::checked(&args.directory)?;
    let mut servers = found.servers;
    if let Some(name) = &args.server {
        let names: Vec<String> = servers.iter().map(|server| server.server.name.clone()).collect();
        servers.retain(|server| server.server.name == *name);
        if servers.is_empty() {
            let directory = args.directory.display();
            let fault = format!("`{name}` is not a server of {directory}{}", suggest(name, &names));
            return Err(Failure::bad("--server", fault));
        }
    }
    if args.json {
        let all = servers.iter().map(|server| compiled(server, DEFAULT_REVISION)).collect();
        print::json(&Value::Array(all));
        return Ok(());
    }
    for server in &servers {
        print::line(&format!("{} {}", server.server.name, server.content_hash));
        for listing in &server.server.listings {
            let names =
                [("mcp", &listing.mcp_name), ("a2a", &listing.a2a_skill), ("rest", &listing.rest_name)];
            let names: Vec<String> = names
                .iter()
                .filter(|(_, name)| !name.is_empty())
                .map(|(protocol, name)| format!("{protocol}:{name}"))
                .collect();
            print::line(&format!("  {}@{} {}", listing.id, listing.version, names.join(" ")));
        }
    }
    Ok(())
}
