#!/usr/bin/env bash
# Train on the log of one day, compare on the jobs of the next, and install the policy only if it is better.
# Usage: retrain.sh TRAINING.jsonl HELD-OUT.jsonl POLICY.npz SLOTS    (needs jq)
# Status: 0 installed, 3 kept the old policy. DECIMA and ITERATIONS may be set in the environment.
set -euo pipefail
training=$1 held_out=$2 policy=$3 slots=$4
decima=${DECIMA:-decima}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$decima" workload import live "$training" --out "$work/training.json"
"$decima" workload import live "$held_out" --out "$work/held-out.json"
"$decima" train --config batch --workload "$work/training.json" --set cluster.executors="$slots" \
    --set cluster.moving_delay=0 --set iterations="${ITERATIONS:-200}" --out "$work/run"
"$decima" compare --workload "$work/held-out.json" --executors "$slots" --moving-delay 0 --seeds 20 \
    --schedulers "decima:$policy,decima:$work/run/policy.npz" --out "$work/pictures" --json "$work/compared.json"

# Paired by seed: mean of old minus new, and half its 95 % interval (Student's t, 19 degrees of freedom).
verdict=$(jq -r --arg old "decima:$policy" --arg new "decima:$work/run/policy.npz" '
    [.schedulers[$old].per_seed_mean_jct_s, .schedulers[$new].per_seed_mean_jct_s] | transpose | map(.[0] - .[1])
    | length as $n | (add / $n) as $mean
    | (2.093 * ((map(. - $mean | . * .) | add) / ($n - 1) | sqrt) / ($n | sqrt)) as $half
    | "\(if $mean > $half then "better" else "kept" end) \($mean) \($half)"' "$work/compared.json")
read -r outcome gain half <<< "$verdict"
echo "new policy: mean JCT lower by $gain s, plus or minus $half s, on the jobs of $held_out"
if [ "$outcome" != better ]; then
    echo "kept $policy"
    exit 3
fi
cp "$work/run/policy.npz" "$policy.new"
mv "$policy.new" "$policy"
echo "installed $policy"
