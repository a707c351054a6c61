LOG=
mkdir -p "$STATE" "$SVC/releases" && chmod 0755 "$STATE" &&
    mkdir "$DIR" && mkdir "$DIR/logs" && chmod 0755 "$DIR" "$DIR/logs" || { say "$DIR cannot be made"; exit 73; }
