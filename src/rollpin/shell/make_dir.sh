LOG=
mkdir -p "$STATE" "$SVC/releases" && chmod 0755 "$STATE" &&
    mkdir "$DIR" && printf '%s' "$TX" >"$DIR/tx" && mkdir "$DIR/logs" && chmod 0755 "$DIR" "$DIR/logs" || { say "$DIR cannot be made"; exit 73; }
