//! Calls that run when their linked account is removed or expires.

use super::*;

/// Life of a link that is to expire: longer than a call needs to begin.
const SHORT: Duration = Duration::from_secs(6);

/// Starts a call of this user; returns its answer, which comes as an event if it takes long.
fn calling(world: &World, user: &str) -> tokio::task::JoinHandle<Value> {
    let gateway = world.gateways[0].clone();
    let params = json!({"name": "echo", "arguments": {"message": "m"}});
    let call = Modern::new("demo", &token(user), "tools/call", params);
    tokio::spawn(async move { call.send(&gateway).await.last() })
}

#[tokio::test]
async fn a_running_call_ends_with_its_account_and_the_others_go_on() {
    let world = World::start().await;
    world.heard.accepted.lock().extend(["at-0".to_owned(), "of-bob".to_owned()]);
    world.put_link("at-0", HOUR).await;
    let bob = LinkKey { subject: "bob".into(), ..alice() };
    world.put_link_of([8; 16], &bob, "of-bob", HOUR).await;
    let held = Arc::new(Semaphore::new(0));
    *world.heard.held.lock() = Some(held.clone());
    let call = |user: &str| {
        let params = json!({"name": "echo", "arguments": {"message": "m"}});
        Modern::new("demo", &token(user), "tools/call", params)
    };
    let of_bob = {
        let gateway = world.gateways[0].clone();
        let call = call("bob");
        tokio::spawn(async move { call.send(&gateway).await.json() })
    };
    let removing = async {
        until_async("both calls run", async || world.heard.calls.lock().len() == 2).await;
        // As another gateway or an admin does.
        let of_alice = LinkFilter { org: "acme", subject: "alice", ..LinkFilter::default() };
        assert_eq!(world.store.remove_links(of_alice).await.unwrap(), 1);
    };
    let keeping = world.gateways[0].gateway.keep_links();
    let of_alice = call("alice");
    let ending = async { tokio::join!(of_alice.send(&world.gateways[0]), removing).0.json() };
    let ended = tokio::time::timeout(Duration::from_secs(30), async {
        tokio::select! {
            () = keeping => panic!("it keeps on"),
            answer = ending => answer,
        }
    });
    let ended = ended.await.expect("the call ends, although its service does not answer");
    assert!(!is_done(&ended), "{ended}");
    assert!(!of_bob.is_finished(), "another account");
    held.add_permits(2);
    let answer = of_bob.await.unwrap();
    assert!(is_done(&answer), "{answer}");
    world.gateways[0].gateway.flush().await;
    let events = world.gateways[0].audit.events();
    let events: Vec<Value> = events.iter().map(|event| serde_json::from_str(&event.event).unwrap()).collect();
    let end =
        events.iter().find(|event| event["event"] == "call.finish" && event["user"] == "alice").unwrap();
    assert_eq!(end["outcome"], "cancelled", "{end}");
}

#[tokio::test]
async fn a_running_call_goes_on_when_its_link_expires() {
    let world = World::start().await;
    world.heard.accepted.lock().extend(["at-0".to_owned(), "of-bob".to_owned()]);
    let bob = LinkKey { subject: "bob".into(), ..alice() };
    world.put_link_of([8; 16], &bob, "of-bob", HOUR).await;
    let held = Arc::new(Semaphore::new(0));
    *world.heard.held.lock() = Some(held.clone());
    world.put_link_until(LINK, &alice(), ("at-0", HOUR), SHORT).await;
    let of_alice = calling(&world, "alice");
    let of_bob = calling(&world, "bob");
    let looking = async {
        until_async("both calls run", async || world.heard.calls.lock().len() == 2).await;
        until_async("her link ends", async || world.store.link(&alice()).await.unwrap().is_none()).await;
        // A look that ends the call of bob comes after the end of her link.
        let link_of_bob = LinkFilter { org: "acme", subject: "bob", ..LinkFilter::default() };
        assert_eq!(world.store.remove_links(link_of_bob).await.unwrap(), 1);
        until_async("the call of bob ends", async || of_bob.is_finished()).await;
    };
    let keeping = world.gateways[0].gateway.keep_links();
    tokio::select! {
        () = keeping => panic!("it keeps on"),
        () = looking => {}
    }
    assert!(!is_done(&of_bob.await.unwrap()));
    assert!(!of_alice.is_finished(), "nobody removed her account");
    held.add_permits(2);
    let answer = of_alice.await.unwrap();
    assert!(is_done(&answer), "{answer}");
    // The next call asks for the account.
    world.page().await;
}
