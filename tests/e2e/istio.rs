//! The Istio manifests: what they patch into a proxy is configuration that Envoy accepts, and the filter in
//! them is the one of the shipped bootstrap.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use asp_e2e::tool;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::certificate::certificates;
use crate::trial::{Shared, trials};

/// Where module.yaml puts the files that say where the certificate is.
const MOUNTED: &str = "/var/lib/asp/sds";

trials! { istio:
    the_patches_make_a_configuration_that_envoy_accepts,
    every_patch_names_the_platforms_own_port_and_host,
}

/// Other applications share the ingress gateway: what a patch does not name, it changes for all of them.
async fn every_patch_names_the_platforms_own_port_and_host(_: &Shared) -> Result<()> {
    let root = tool::root()?;
    let traffic = std::fs::read_to_string(root.join("envoy/istio/traffic.yaml"))?;
    let gateway = traffic.split("\n---").next().context("the Gateway comes first")?;
    let gateway: Value = serde_saphyr::from_str(gateway)?;
    let server = &gateway["spec"]["servers"][0];
    let port = server["port"]["number"].as_u64().context("a port")?;
    let host = server["hosts"][0].as_str().context("a host")?;
    let name = format!(
        "{}/{}",
        gateway["metadata"]["namespace"].as_str().context("a namespace")?,
        gateway["metadata"]["name"].as_str().context("a name")?
    );
    let manifest = std::fs::read_to_string(root.join("envoy/istio/envoy-filter.yaml"))?;
    let manifest: Value = serde_saphyr::from_str(&manifest)?;
    for patch in manifest["spec"]["configPatches"].as_array().context("configPatches is a list")? {
        let kind = &patch["applyTo"];
        let found = &patch["match"];
        ensure!(found["context"] == "GATEWAY", "{kind}: {found}");
        let own = match kind.as_str() {
            // It adds a cluster of its own.
            Some("CLUSTER") => patch["patch"]["operation"] == "ADD",
            Some("NETWORK_FILTER" | "HTTP_FILTER") => {
                let listener = &found["listener"];
                listener["portNumber"] == port && listener["filterChain"]["sni"] == host
            }
            Some("VIRTUAL_HOST") => {
                let routes = &found["routeConfiguration"];
                let virtual_host = json!({"name": format!("{host}:{port}")});
                routes["portNumber"] == port && routes["gateway"] == name && routes["vhost"] == virtual_host
            }
            Some("HTTP_ROUTE") => {
                let routes = &found["routeConfiguration"];
                let route = json!({"name": format!("{host}:{port}"), "route": {"name": "gateway"}});
                routes["portNumber"] == port && routes["gateway"] == name && routes["vhost"] == route
            }
            _ => false,
        };
        ensure!(own, "{kind} matches more than the platform's own: {found}");
    }
    Ok(())
}

async fn the_patches_make_a_configuration_that_envoy_accepts(_: &Shared) -> Result<()> {
    let manifest = std::fs::read_to_string(tool::root()?.join("envoy/istio/envoy-filter.yaml"))?;
    let manifest: Value = serde_saphyr::from_str(&manifest)?;
    let patch = |kind: &str| -> Result<Value> {
        let patches = manifest["spec"]["configPatches"].as_array().context("configPatches is a list")?;
        let found = patches.iter().find(|patch| patch["applyTo"] == kind);
        Ok(found.with_context(|| format!("a patch of kind {kind}"))?["patch"]["value"].clone())
    };
    let patches = manifest["spec"]["configPatches"].as_array().context("configPatches is a list")?;
    let of_filters = patches.iter().filter(|patch| patch["applyTo"] == "HTTP_FILTER");
    let mut filters: Vec<Value> = of_filters.map(|patch| patch["patch"]["value"].clone()).collect();
    ensure!(filters.iter().map(|filter| &filter["name"]).eq(["asp-edge", "asp-revoked"]), "{filters:?}");
    ensure!(filters[1]["disabled"] == true, "no request passes through the second");
    let code = "/config_discovery/default_config/config/vm_config/code/local/filename";
    *filters[0].pointer_mut(code).context("the module is a file")? = json!(tool::filter_wasm()?);
    let directory = tempfile::tempdir()?;
    let cluster = with_files(&patch("CLUSTER")?, directory.path())?;
    let mut manager = patch("NETWORK_FILTER")?["typed_config"].clone();
    let mut host = patch("VIRTUAL_HOST")?;
    host["name"] = json!("all");
    host["domains"] = json!(["*"]);
    let mut route = patch("HTTP_ROUTE")?;
    route["match"] = json!({"prefix": "/"});
    route["route"]["cluster"] = json!("asp-control");
    host["routes"] = json!([route]);
    manager["stat_prefix"] = json!("istio");
    manager["route_config"] = json!({"virtual_hosts": [host]});
    let router = json!({"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"});
    filters.push(json!({"name": "envoy.filters.http.router", "typed_config": router}));
    manager["http_filters"] = json!(filters);
    let listener = json!({
        "name": "ingress",
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}},
        "filter_chains": [{"filters": [{
            "name": "envoy.filters.network.http_connection_manager",
            "typed_config": manager,
        }]}],
    });
    let config = json!({
        "node": {"id": "ingress", "cluster": "ingress"},
        "static_resources": {"listeners": [listener], "clusters": [cluster]},
    });
    validate(&config).await?;
    let mut broken = config;
    broken["static_resources"]["clusters"][0]["connect_timeot"] = json!("1s");
    if validate(&broken).await.is_ok() {
        bail!("Envoy's validation notices nothing");
    }
    Ok(())
}

/// The control plane's cluster with a certificate, and the files that say where it is, in `directory`.
fn with_files(cluster: &Value, directory: &Path) -> Result<Value> {
    let files = certificates(directory, "asp-control.asp.svc.cluster.local")?;
    for (from, to) in [(&files.authority, "ca.crt"), (&files.chain, "tls.crt"), (&files.key, "tls.key")] {
        std::fs::copy(from, directory.join(to))?;
    }
    let cluster = cluster.to_string();
    ensure!(
        cluster.matches(MOUNTED).count() == mounted(directory)?,
        "by mutual TLS, with the files of module.yaml"
    );
    Ok(serde_json::from_str(&cluster.replace(MOUNTED, &directory.display().to_string()))?)
}

/// Writes what module.yaml mounts beside the certificate, for one in `directory`; how many files.
fn mounted(directory: &Path) -> Result<usize> {
    let module = std::fs::read_to_string(tool::root()?.join("envoy/istio/module.yaml"))?;
    let documents = module.split("\n---").map(serde_saphyr::from_str).collect::<Result<Vec<Value>, _>>()?;
    let map = documents.iter().find(|document| document["kind"] == "ConfigMap").context("a ConfigMap")?;
    let files = map["data"].as_object().context("it has files")?;
    for (name, text) in files {
        let text =
            text.as_str().context("text")?.replace("/var/lib/asp/peer", &directory.display().to_string());
        std::fs::write(directory.join(name), text)?;
    }
    Ok(files.len())
}

async fn validate(config: &Value) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("config.json");
    std::fs::write(&path, config.to_string())?;
    let mut command = Command::new(tool::envoy()?);
    command
        .args(["--mode", "validate", "--log-level", "error", "--config-path"])
        .arg(&path)
        .kill_on_drop(true);
    let output = command.output().await?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
