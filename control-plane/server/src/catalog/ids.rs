//! Claims on ids of primitives by stored servers, read from their files. A plugin package is installed under its name as a
//! primitive's own package is under its id, so its name is claimed as an id is.
//!
//! Keeps true: a stored server keeps its ids whether or not it is published. It loses no id because an issuer stops
//! listing its audience, an issuer is deleted, or a rule becomes stricter.

use std::collections::BTreeSet;

use asp_platform::clock;
use asp_proto::snapshot::Primitive;
use asp_proto::snapshot::runtime::Mode;
use asp_registry::{CompiledServer, plugin_package};
use asp_store::control::sql::ControlStore;
use asp_store::control::{Change, ServerRecord, StoreError};
use serde::Deserialize;

use super::compile;

/// The part of a spec that is needed here.
#[derive(Deserialize)]
struct OnlyId {
    id: String,
}

/// Returns the ids of a server's primitives and the names of its plugin packages, each once, sorted.
pub fn of(server: &CompiledServer) -> Vec<&str> {
    let packages = server.primitives.iter().filter_map(package);
    let ids = server.primitives.iter().map(|primitive| primitive.id.as_str());
    let ids: BTreeSet<&str> = ids.chain(packages).collect();
    ids.into_iter().collect()
}

/// Returns the name of the plugin package that has the primitive's code.
fn package(primitive: &Primitive) -> Option<&str> {
    let Mode::Plugin(plugin) = primitive.runtime.as_ref()?.mode.as_ref()? else { return None };
    Some(plugin_package(plugin, &primitive.id, &primitive.version).0)
}

/// Claims the ids of all stored servers, oldest server first: earlier versions recorded no claims. Writes nothing if
/// all claims are recorded.
pub async fn take_stored(store: &ControlStore) -> Result<(), StoreError> {
    let mut records = store.servers().await?.value;
    records.sort_by(|a, b| (a.revision, &a.name).cmp(&(b.revision, &b.name)));
    for record in records {
        take(store, record).await?;
    }
    Ok(())
}

/// Claims the ids of one server before it is replaced or deleted: a process of an earlier version may have stored it in
/// the meantime.
pub async fn take_stored_of(store: &ControlStore, name: &str) -> Result<(), StoreError> {
    match store.server(name).await? {
        Some(record) => take(store, record).await,
        None => Ok(()),
    }
}

async fn take(store: &ControlStore, record: ServerRecord) -> Result<(), StoreError> {
    let name = record.name.clone();
    let ids = tokio::task::spawn_blocking(move || of_files(&record)).await;
    let ids = ids.map_err(|error| StoreError::Backend(error.to_string()))?;
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let change = Change::unconditional("control plane", clock::now_ms());
    let written = store.take_primitives(&change, &name, &ids).await?;
    if written.changed {
        tracing::info!(server = %name, ids = ids.len(), "ids of a stored server's primitives claimed for it");
    }
    Ok(())
}

/// Returns the ids of the compiled server; if it no longer compiles, the ids that its files name.
fn of_files(record: &ServerRecord) -> Vec<String> {
    if let Ok(server) = compile(&record.name, &record.files) {
        return of(&server).into_iter().map(str::to_owned).collect();
    }
    let said = record.files.iter().filter_map(|file| serde_saphyr::from_str::<OnlyId>(&file.text).ok());
    let ids: BTreeSet<String> = said.map(|spec| spec.id).filter(|id| asp_edge::names::is_name(id)).collect();
    ids.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use asp_store::control::{PrimitiveServer, SourceFile};

    use super::*;

    /// A server with one tool of this id, which accepts an audience that no issuer lists.
    fn files(name: &str, id: &str) -> Vec<SourceFile> {
        let server = format!(
            "apiVersion: asp/v1\nname: {name}\nprotocols: [mcp]\n\
             auth: {{schemes: [jwt], issuers: [gone], audiences: [nobodys]}}\nprimitives: [{{ref: {name}/{id}}}]\n"
        );
        let spec = format!(
            "id: {id}\nname: Pay\ntype: tool\nversion: 1.0.0\nowner: payments@example.com\nsummary: Pays.\n\
             mutation: destructive\nprimitiveSchema: {{input_schema: {{type: object}}}}\n\
             runtime: {{mode: builtin, entrypoint: echo}}\n"
        );
        let file = |path: String, text: String| SourceFile { path, text };
        vec![file(format!("{name}/server.yaml"), server), file(format!("{name}/{id}.yaml"), spec)]
    }

    fn change() -> Change {
        Change::unconditional("before", 1)
    }

    async fn holders(store: &ControlStore, id: &str) -> Vec<(String, bool)> {
        let known = store.primitive_servers(id).await.unwrap().value;
        known.into_iter().map(|PrimitiveServer { server, first, .. }| (server, first)).collect()
    }

    #[test]
    fn the_name_of_a_package_is_claimed_as_an_id_is() {
        let mut files = files("bank", "cc.pay");
        let plugin = "{mode: plugin, language: python, package: tools@2.0.0, entrypoint: main.py}";
        files[1].text = files[1].text.replace("{mode: builtin, entrypoint: echo}", plugin);
        let server = compile("bank", &files).ok().unwrap();
        assert_eq!(of(&server), ["cc.pay", "tools"]);
    }

    #[tokio::test]
    async fn the_ids_of_servers_from_before_are_theirs_after_a_start() {
        let store = ControlStore::in_memory().await.unwrap();
        // As it is after the migration: servers, and nothing noted of their ids.
        for name in ["zoo", "bank"] {
            store.put_server(&change(), name, &files(name, "cc.pay"), "before").await.unwrap();
        }
        let broken = [SourceFile { path: "old/a.yaml".into(), text: "id: cc.old\nno: longer good\n".into() }];
        store.put_server(&change(), "old", &broken, "before").await.unwrap();
        assert!(holders(&store, "cc.pay").await.is_empty());
        take_stored(&store).await.unwrap();
        let expected = [("bank".to_owned(), false), ("zoo".to_owned(), true)];
        assert_eq!(holders(&store, "cc.pay").await, expected, "the one that was stored first has it");
        assert_eq!(holders(&store, "cc.old").await, [("old".to_owned(), true)]);

        let revision = store.revision().await.unwrap();
        take_stored(&store).await.unwrap();
        assert_eq!(store.revision().await.unwrap(), revision, "once is enough");
        store.delete_server(&change(), "zoo").await.unwrap();
        assert_eq!(holders(&store, "cc.pay").await, expected);

        store.withdraw_primitive(&change(), "cc.pay", "bank").await.unwrap();
        take_stored(&store).await.unwrap();
        assert_eq!(holders(&store, "cc.pay").await, expected[1..], "what was withdrawn stays so");
    }
}
