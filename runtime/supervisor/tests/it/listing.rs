//! Tests of plugins that list their resources: the same list from each language's own hook, and from none of them.

use asp_proto::plugin::{Context, ListResourcesRequest, ListResourcesResponse, ResourceInfo};
use serde_json::{Value, json};

use super::harness::{Said, Stack, compile_java, start_shims};

const PYTHON: &str = r#"
from asp_plugin import plugin

@plugin.resource
def read(args, ctx):
    return args["id"]

@plugin.list
def pages(ctx):
    yield {"uri": f"page://{ctx.caller.user}", "name": "Yours", "title": "Your page", "mime_type": "text/plain"}
    yield {"uri": "page://2", "name": "Two", "description": "The second one."}
"#;

const NODE: &str = r#"
import { resource } from '@asp/plugin';
export default resource({
  read: (uri, args) => args.id,
  list: (context) => [
    { uri: `page://${context.caller.user}`, name: 'Yours', title: 'Your page', mimeType: 'text/plain' },
    { uri: 'page://2', name: 'Two', description: 'The second one.' },
  ],
});
"#;

const JAVA: &str = r#"
import asp.plugin.Arguments;
import asp.plugin.Content;
import asp.plugin.Context;
import asp.plugin.Resource;
import asp.plugin.ResourceInfo;
import java.util.List;

public final class Pages implements Resource {
    @Override
    public List<Content> read(String uri, Arguments variables, Context context) {
        return List.of(Content.text(uri, "text/plain", uri));
    }

    @Override
    public List<ResourceInfo> list(Context context) {
        return List.of(
                new ResourceInfo("page://" + context.caller().user(), "Yours", "Your page", null, "text/plain"),
                new ResourceInfo("page://2", "Two", null, "The second one.", null));
    }
}
"#;

fn plugin(language: &str, entrypoint: &str) -> Value {
    json!({
        "language": language, "entrypoint": entrypoint, "kind": "resource_template",
        "inputSchema": {"type": "object", "properties": {"id": {"type": "string"}}},
        "limits": {"memoryBytes": 268_435_456, "pids": 64},
    })
}

async fn lists(stack: &Stack, id: &str) -> Vec<Said> {
    let ctx = Context { tenant_id: "acme".into(), user_id: "alice".into(), ..Context::default() };
    let mut tunnel = stack.tunnel(id).await;
    let asked = ListResourcesRequest { ctx: Some(ctx), request_id: "one".into(), ..Default::default() };
    tunnel.frame(&asked).await;
    tunnel.rest().await
}

async fn lists_the_pages(stack: &Stack) {
    let said = lists(stack, "pages").await;
    let listed = said.iter().find_map(|said| match said {
        Said::Other(any) => Some(any.to_msg::<ListResourcesResponse>().unwrap()),
        _ => None,
    });
    let listed = listed.unwrap_or_else(|| panic!("{said:?}"));
    let yours = ResourceInfo {
        uri: "page://alice".into(),
        name: "Yours".into(),
        title: "Your page".into(),
        mime_type: "text/plain".into(),
        ..ResourceInfo::default()
    };
    let second = ResourceInfo {
        uri: "page://2".into(),
        name: "Two".into(),
        description: "The second one.".into(),
        ..ResourceInfo::default()
    };
    assert_eq!(listed.resources, [yours, second]);
}

#[tokio::test]
async fn python_lists_resources() {
    lists_the_pages(&start_shims(&[("pages", plugin("python", "pages.py"), PYTHON)]).await).await;
}

#[tokio::test]
async fn node_lists_resources() {
    lists_the_pages(&start_shims(&[("pages", plugin("node", "pages.mjs"), NODE)]).await).await;
}

#[tokio::test]
async fn java_lists_resources() {
    let stack = start_shims(&[("pages", plugin("java", "Pages"), JAVA)]).await;
    compile_java(&stack, "pages", "Pages");
    lists_the_pages(&stack).await;
}

#[tokio::test]
async fn who_has_nothing_to_list_lists_nothing() {
    let hookless = PYTHON.split("@plugin.list").next().unwrap();
    let stack = start_shims(&[("pages", plugin("python", "pages.py"), hookless)]).await;
    let said = lists(&stack, "pages").await;
    let empty = said.iter().any(|said| match said {
        Said::Other(any) => any.to_msg::<ListResourcesResponse>().unwrap().resources.is_empty(),
        _ => false,
    });
    assert!(empty, "{said:?}");
}
