//! Authorization responses and the issuer that they name (RFC 9207): of the company's issuer, and of a provider.

use super::*;

const HUB: &str = "https://hub.example.com";
const OTHER: &str = "https://evil.example.com";

/// Whether the parameter is required, its value, and whether the response counts; `own` is the issuer.
fn cases(own: &'static str) -> [(bool, Option<&'static str>, bool); 8] {
    [
        (true, Some(own), true),
        (true, None, false),
        (true, Some(""), false),
        (true, Some(OTHER), false),
        (false, Some(own), true),
        (false, None, true),
        (false, Some(""), false),
        (false, Some(OTHER), false),
    ]
}

fn with_iss<'a>(pairs: &[(&'a str, &'a str)], iss: Option<&'a str>) -> Vec<(&'a str, &'a str)> {
    pairs.iter().copied().chain(iss.map(|iss| ("iss", iss))).collect()
}

#[tokio::test]
async fn a_code_of_a_provider_is_redeemed_only_if_the_response_names_it() {
    for (required, iss, counts) in cases(HUB) {
        let world = World::start().await;
        let row = world.store.provider("hub").await.unwrap().unwrap();
        let mut document: Value = serde_json::from_str(&row.document).unwrap();
        document["issuer"] = json!(HUB);
        document["issParameter"] = json!(required);
        assert!(world.store.put_provider("hub", &document.to_string(), &row.sealed).await.unwrap());
        let (path, cookie) = world.response(&with_iss(&[("code", "c0de")], iss)).await;
        let page = world.get(&path, &cookie).await;
        assert_eq!(page.status == StatusCode::OK, counts, "{required} {iss:?}: {}", page.text);
        assert_eq!(world.heard.grants.lock().len(), usize::from(counts), "{required} {iss:?}");
    }
}

#[tokio::test]
async fn a_person_is_signed_in_only_if_the_response_names_the_issuer() {
    for (required, iss, counts) in cases("asp-dev") {
        let mut world = World::start().await;
        let mut snapshot = linked_snapshot(&world.origin);
        let access = snapshot.issuer_access.last_mut().unwrap();
        access.login.as_mut().unwrap().iss_required = required;
        let deps = IssuerDeps { origins: vec![world.origin.clone()], ..IssuerDeps::default() };
        world.gateways[1] = Fixture::linking(snapshot, deps, world.store.clone());
        let to_issuer = world.post("/account/sign-in", "", PUBLIC_URL, &[("server", "demo")]).await;
        let state = sent_to(&to_issuer)["state"].clone();
        let back = query(&with_iss(&[("state", &state), ("code", "alice")], iss));
        let answer = world.get(&format!("/demo/oauth/callback?{back}"), &cookie(&to_issuer)).await;
        assert_eq!(answer.status == StatusCode::SEE_OTHER, counts, "{required} {iss:?}: {}", answer.text);
    }
}
