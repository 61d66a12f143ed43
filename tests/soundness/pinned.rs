//! Saved plans of random pipelines. Planning from the inputs in a saved plan chooses the same plan
//! again, even on a machine with other prices and without sample rows.

use std::sync::Arc;

use forebay_planner::clauses::Relax;
use forebay_planner::compile::Compiled;
use forebay_planner::optimizer::PlanningContext;
use forebay_planner::saved::SavedPlan;
use forebay_runtime::run::Sample;

use crate::case::Case;
use crate::check::{odd_prices, planned};
use crate::data;
use crate::draw::Draw;

/// Number of random pipelines that are tried.
const CASES: u64 = 60;

#[tokio::test]
async fn a_saved_plan_is_reproduced() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = data::catalog(dir.path()).await;
    let (mut other, mut profiled) = (0, 0);
    for seed in 0..CASES {
        let sql = Case::of(seed).sql();
        let Ok((pipeline, written)) = planned(&catalog, &sql).await else {
            continue;
        };
        let mut clauses = pipeline.clauses.clone();
        clauses.options.relax = Relax::Statistical;
        clauses.options.cache_dir = (seed % 2 == 0).then(|| "elsewhere".to_owned());
        let on = |machine: &PlanningContext| {
            let compiled = Compiled::on(machine, &pipeline.plan, clauses.clone());
            compiled.unwrap_or_else(|why| panic!("{seed}: {why}\n{sql}"))
        };
        let odd = PlanningContext {
            prices: odd_prices(&mut Draw::new(!seed)),
            cores: 1 + seed % 5,
            probe: Some(Arc::new(Sample::of(&written.written).await)),
            ..PlanningContext::default()
        };
        let chosen = on(&odd);
        let text = SavedPlan::of(&chosen, None).unwrap().to_json().unwrap();
        assert_eq!(
            SavedPlan::of(&on(&odd), None).unwrap().to_json().unwrap(),
            text
        );
        let saved = SavedPlan::from_json(&text).unwrap();
        let again = saved.compile(&pipeline.plan, clauses.clone());
        let (again, differs) = again.unwrap_or_else(|why| panic!("{seed}: {why}\n{sql}"));
        assert_eq!(differs, None, "{seed}: {sql}");
        assert_eq!(SavedPlan::of(&again, None).unwrap(), saved, "{seed}: {sql}");
        let here = on(&PlanningContext::default());
        other += u64::from(here.plan_hash().unwrap() != saved.plan_hash());
        profiled += u64::from(text.contains("\"growth\""));
    }
    // The test is useful only if, without the recorded inputs, this machine would choose another
    // plan for many of the pipelines.
    assert!(
        other >= CASES / 10 && profiled >= CASES / 4,
        "{other}, {profiled}"
    );
}
