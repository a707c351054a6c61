LOG=
make_release_dir || { say "$DIR cannot be made: $(one_line "$_said")"; exit 73; }
