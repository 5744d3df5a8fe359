//! Tests of queues that share a budget.

use super::*;
use crate::medium::Medium;

#[test]
fn a_queue_alone_takes_what_the_model_says_and_others_at_the_same_time_slow_it() {
    let model = Model::of(&Medium::find("dcpmm100-256g").expect("built in"), 1).expect("model");
    let write = |offset| Request {
        place: 0,
        direction: Direction::Write,
        offset,
        bytes: 4096,
        overlapped: false,
        store: None,
        pattern: Some(Pattern::Sequential),
    };
    let alone = Budget::new(&model).take(&model, 1, 0.0, &write(0));
    let budget = Budget::new(&model);
    let among = (0..4).map(|queue| budget.take(&model, queue, 0.0, &write(queue * 4096))).fold(0.0, f64::max);
    assert!(among > 2.0 * alone, "{among} for four, {alone} for one");
}
