//! Saturation: applies the rules wherever they match, until nothing changes.
//!
//! The loop replaces egg's runner for two reasons. A rule is a function of two operators, whose
//! verdict is computed once however often the two meet; and the limits are counts alone, so that
//! every machine finds the same plan.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use egg::Id;

use super::facts::{cat_fact, op_fact};
use super::graph::{Knowledge, PlanGraph, param_of, plan_fact};
use super::ids::ParamId;
use super::lang::Node;
use super::matches::Match;
use super::plan_fact::PlanFact;
use super::proof::matched;
use super::rules::{Rule, Site, Verdict, concat, in_place};
use super::slots::SlotSet;

/// Limits of a search, which ends as soon as it reaches one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of iterations. A plan of `n` operators needs about `n + 1`.
    pub iterations: usize,
    /// Maximum number of nodes.
    pub nodes: usize,
    /// Maximum number of columns of all classes together, since the facts of each column take
    /// memory and time.
    pub columns: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            iterations: 60,
            nodes: 20_000,
            columns: 2_000_000,
        }
    }
}

/// The size of a finished search, what ended it, and what the rules did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Saturation {
    /// Final number of nodes.
    pub nodes: usize,
    /// Final number of classes.
    pub classes: usize,
    /// Number of columns of all classes together, including merged ones.
    pub columns: usize,
    /// Number of iterations of the search.
    pub iterations: usize,
    /// True if no rule found anything to change; false if a limit ended the search.
    pub saturated: bool,
    /// For each rule, the number of times that it proved two plans equal that were not yet known to
    /// be equal.
    pub fired: BTreeMap<&'static str, usize>,
    /// For each rule, the pairs of operators that it matched but whose rewrite a condition refused,
    /// with that condition.
    pub refused: BTreeMap<&'static str, BTreeMap<Site, &'static str>>,
    /// The operators that could not be moved past a union, with the condition that refused.
    pub refused_over_union: BTreeMap<ParamId, &'static str>,
}

/// Applies the rules until nothing changes or a limit is reached.
pub(crate) fn saturate(
    graph: &mut PlanGraph,
    rules: &[Rule],
    disabled: impl Fn(&str) -> bool,
    limits: Limits,
) -> Saturation {
    let mut search = Search {
        graph,
        rules,
        distribute: !disabled(concat::DISTRIBUTE),
        share: !disabled(concat::SHARE),
        verdicts: HashMap::new(),
        report: Saturation::default(),
    };
    search.run(limits);
    search.report
}

struct Search<'a> {
    graph: &'a mut PlanGraph,
    rules: &'a [Rule],
    distribute: bool,
    share: bool,
    /// The verdicts that the rules gave on each two operators, by rule.
    verdicts: HashMap<Site, Arc<Vec<(&'static str, Verdict)>>>,
    report: Saturation,
}

impl Search<'_> {
    fn run(&mut self, limits: Limits) {
        let mut seen: HashSet<Match> = HashSet::new();
        let mut sizes: HashMap<Id, usize> = HashMap::new();
        // True to look for matches in every class, false to look only in changed classes.
        let mut all = true;
        self.graph.rebuild();
        while self.report.iterations < limits.iterations && self.graph.analysis.poisoned.is_none() {
            self.report.iterations += 1;
            let grown = self.graph.classes().filter_map(|class| {
                (sizes.get(&class.id) != Some(&class.nodes.len())).then_some(class.id)
            });
            let grown: HashSet<Id> = grown.collect();
            let mut found = self.matches(|id| all || grown.contains(&id));
            found.retain(|&found| seen.insert(found));
            let terms: Vec<Id> = found.iter().map(|&m| matched(self.graph, m)).collect();
            sizes = self
                .graph
                .classes()
                .map(|c| (c.id, c.nodes.len()))
                .collect();
            let mut changed = false;
            for (found, term) in found.into_iter().zip(terms) {
                changed |= self.apply(found, term);
                if self.is_full(limits) {
                    break;
                }
            }
            self.graph.rebuild();
            if self.is_full(limits) {
                break;
            }
            // A class may have changed without growing, so the last iteration visits all classes.
            if !changed && all {
                self.report.saturated = true;
                break;
            }
            all = !changed;
        }
        self.report.nodes = self.graph.total_number_of_nodes();
        self.report.columns = self.graph.analysis.columns;
        self.report.classes = self.graph.number_of_classes();
    }

    fn is_full(&self, limits: Limits) -> bool {
        self.graph.total_size() > limits.nodes || self.graph.analysis.columns > limits.columns
    }

    /// The matches that involve a class for which `fresh` is true.
    fn matches(&self, fresh: impl Fn(Id) -> bool) -> Vec<Match> {
        let graph = &*self.graph;
        let mut found = Vec::new();
        for class in graph.classes() {
            for node in &class.nodes {
                match node {
                    Node::Op([p, _, x]) => {
                        if !fresh(class.id) && !fresh(graph.find(*x)) {
                            continue;
                        }
                        let Some(outer) = param_of(graph, *p) else {
                            continue;
                        };
                        for below in &graph[*x].nodes {
                            match below {
                                Node::Op([q, _, input]) => {
                                    let Some(inner) = param_of(graph, *q) else {
                                        continue;
                                    };
                                    found.push(Match::Pair {
                                        class: class.id,
                                        site: self.site(outer, inner, *input),
                                        input: graph.find(*input),
                                    });
                                }
                                Node::Cat(inputs) if self.distribute => {
                                    found.push(Match::OverCat {
                                        class: class.id,
                                        param: outer,
                                        inputs: inputs.map(|id| graph.find(id)),
                                    });
                                }
                                _ => {}
                            }
                        }
                    }
                    Node::Cat([a, b]) if self.share => {
                        let fresh = [class.id, graph.find(*a), graph.find(*b)]
                            .into_iter()
                            .any(&fresh);
                        if fresh {
                            self.shared_operators(class.id, *a, *b, &mut found);
                        }
                    }
                    _ => {}
                }
            }
        }
        found
    }

    /// The site of two operators over a class. If both rewrite one slot, the site has the slot's
    /// type.
    fn site(&self, outer: ParamId, inner: ParamId, input: Id) -> Site {
        let arena = &self.graph.analysis.arena;
        let below = in_place(arena.spec(outer), arena.spec(inner)).and_then(|slot| {
            let fact = plan_fact(self.graph, input)?;
            Some(fact.columns.get(slot)?.data_type)
        });
        Site {
            below,
            ..Site::of(outer, inner)
        }
    }

    /// Finds the operators that stand over both inputs of a union.
    fn shared_operators(&self, class: Id, a: Id, b: Id, found: &mut Vec<Match>) {
        let graph = &*self.graph;
        for left in &graph[a].nodes {
            let Node::Op([p, _, x]) = left else { continue };
            for right in &graph[b].nodes {
                let Node::Op([q, _, y]) = right else {
                    continue;
                };
                let params = (param_of(graph, *p), param_of(graph, *q));
                if let (Some(param), true) = (params.0, params.0 == params.1) {
                    let inputs = [graph.find(*x), graph.find(*y)];
                    found.push(Match::CatOf {
                        class,
                        param,
                        inputs,
                    });
                }
            }
        }
    }

    fn verdicts(&mut self, site: Site) -> Arc<Vec<(&'static str, Verdict)>> {
        if let Some(known) = self.verdicts.get(&site) {
            return Arc::clone(known);
        }
        let arena = &mut self.graph.analysis.arena;
        let mut found = Vec::new();
        for rule in self.rules {
            match (rule.apply)(arena, site) {
                Some(Err(why)) => {
                    let refused = self.report.refused.entry(rule.name).or_default();
                    refused.insert(Site::of(site.outer, site.inner), why);
                }
                Some(verdict) => found.push((rule.name, verdict)),
                None => {}
            }
        }
        let found = Arc::new(found);
        self.verdicts.insert(site, Arc::clone(&found));
        found
    }

    /// Applies the matching rules to the matched term. Returns true if two classes were merged.
    fn apply(&mut self, found: Match, term: Id) -> bool {
        match found {
            Match::Pair { class, site, input } => {
                let mut changed = false;
                for (rule, verdict) in self.verdicts(site).iter() {
                    let Ok(ops) = verdict else { continue };
                    match self.stack(class, input, ops) {
                        Ok(id) => changed |= self.unite(term, id, rule),
                        Err(why) => {
                            let refused = self.report.refused.entry(rule).or_default();
                            refused.insert(Site::of(site.outer, site.inner), why);
                        }
                    }
                }
                changed
            }
            Match::OverCat {
                class,
                param,
                inputs,
            } => match self.distributed(class, param, inputs) {
                Ok(id) => self.unite(term, id, concat::DISTRIBUTE),
                Err(why) => {
                    self.report.refused_over_union.insert(param, why);
                    false
                }
            },
            Match::CatOf {
                class,
                param,
                inputs,
            } => match self.shared(class, param, inputs) {
                Ok(id) => self.unite(term, id, concat::SHARE),
                Err(_) => false,
            },
        }
    }

    /// Stacks operators on `input`, lowest first, such that together they yield the slots of
    /// `class`.
    fn stack(&mut self, class: Id, input: Id, ops: &[ParamId]) -> Result<Id, &'static str> {
        let (Some(whole), Some(below)) = (
            plan_fact(self.graph, class).map(Arc::clone),
            plan_fact(self.graph, input).map(Arc::clone),
        ) else {
            return Err("it is no plan");
        };
        let mut keeps = vec![whole.slots()];
        for &op in ops.iter().rev() {
            let wanted = &keeps[keeps.len() - 1];
            let spec = self.graph.analysis.arena.spec(op);
            keeps.push(spec.needed(wanted));
        }
        // The last entry is what the lowest operator needs from `input`; no operator of the stack
        // passes it on.
        keeps.pop();
        keeps.reverse();
        // The plan is typed before it is added, since a class with contradictory types would poison
        // the graph.
        let mut fact = below;
        let mut at = Some(input);
        for (&op, keep) in ops.iter().zip(&keeps) {
            at = at.and_then(|input| self.known(op, keep, input));
            fact = match at.and_then(|id| plan_fact(self.graph, id)) {
                Some(known) => Arc::clone(known),
                None => {
                    let Knowledge { arena, profile, .. } = &mut self.graph.analysis;
                    let typed = op_fact(arena, profile, op, keep, &fact);
                    Arc::new(typed.map_err(|_| "what it needs is not there")?)
                }
            };
        }
        if !fact.agrees(&whole) {
            return Err(OTHER_TYPES);
        }
        let mut id = input;
        for (&op, keep) in ops.iter().zip(keeps) {
            id = self.over(op, keep, id);
        }
        Ok(id)
    }

    /// The class of an operator over `input`, if the graph contains it.
    fn known(&mut self, op: ParamId, keep: &SlotSet, input: Id) -> Option<Id> {
        let live = self.graph.analysis.arena.intern_slots(keep.clone());
        let live = self.graph.lookup(Node::LiveSlots(live))?;
        let param = self.graph.lookup(Node::Param(op))?;
        self.graph.lookup(Node::Op([param, live, input]))
    }

    fn over(&mut self, op: ParamId, keep: SlotSet, input: Id) -> Id {
        let live = self.graph.analysis.arena.intern_slots(keep);
        let live = self.graph.add(Node::LiveSlots(live));
        let param = self.graph.add(Node::Param(op));
        self.graph.add_uncanonical(Node::Op([param, live, input]))
    }

    /// Applies the operator to each input of a union instead of to the union, if that is
    /// equivalent.
    fn distributed(
        &mut self,
        class: Id,
        param: ParamId,
        inputs: [Id; 2],
    ) -> Result<Id, &'static str> {
        concat::past_union(self.graph.analysis.arena.spec(param))?;
        let [whole, a, b] = facts_of(self.graph, [class, inputs[0], inputs[1]])?;
        let kept = whole.slots();
        let Knowledge { arena, profile, .. } = &mut self.graph.analysis;
        let typed = op_fact(arena, profile, param, &kept, &a)
            .and_then(|a| Ok((a, op_fact(arena, profile, param, &kept, &b)?)))
            .and_then(|(a, b)| cat_fact(arena, &a, &b));
        if !typed.is_ok_and(|fact| fact.agrees(&whole)) {
            return Err(OTHER_TYPES);
        }
        let inputs = inputs.map(|input| self.over(param, kept.clone(), input));
        Ok(self.graph.add_uncanonical(Node::Cat(inputs)))
    }

    /// Applies the operator to a union instead of to each of its inputs, if that is equivalent.
    fn shared(&mut self, class: Id, param: ParamId, inputs: [Id; 2]) -> Result<Id, &'static str> {
        concat::past_union(self.graph.analysis.arena.spec(param))?;
        let [whole, a, b] = facts_of(self.graph, [class, inputs[0], inputs[1]])?;
        let kept = whole.slots();
        let Knowledge { arena, profile, .. } = &mut self.graph.analysis;
        let typed =
            cat_fact(arena, &a, &b).and_then(|cat| op_fact(arena, profile, param, &kept, &cat));
        if !typed.is_ok_and(|fact| fact.agrees(&whole)) {
            return Err(OTHER_TYPES);
        }
        let cat = self.graph.add_uncanonical(Node::Cat(inputs));
        Ok(self.over(param, kept, cat))
    }

    fn unite(&mut self, term: Id, id: Id, rule: &'static str) -> bool {
        let changed = self.graph.find(term) != self.graph.find(id);
        if changed {
            *self.report.fired.entry(rule).or_default() += 1;
        }
        // Another proof of a known equality may be shorter.
        if changed || self.graph.are_explanations_enabled() && term != id {
            self.graph.union_trusted(term, id, rule);
        }
        changed
    }
}

const OTHER_TYPES: &str = "the result would have other columns";

fn facts_of<const N: usize>(
    graph: &PlanGraph,
    classes: [Id; N],
) -> Result<[Arc<PlanFact>; N], &'static str> {
    let facts = classes.map(|class| plan_fact(graph, class).map(Arc::clone));
    if facts.iter().any(Option::is_none) {
        return Err("it is no plan");
    }
    let facts: Vec<_> = facts.into_iter().flatten().collect();
    facts.try_into().map_err(|_| "it is no plan")
}

/// The upper and lower operator of a site, for display.
#[cfg(test)]
pub(crate) fn site_text(arena: &super::arena::Arena, site: Site) -> (String, String) {
    let text = |param| arena.spec(param).text.clone();
    (text(site.outer), text(site.inner))
}
